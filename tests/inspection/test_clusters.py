"""Clusters, hubs and spreads of matrices whose structure is known."""

from __future__ import annotations

import numpy as np
import pytest

from sere.errors import ArtifactError
from sere.inspection import inspect, words
from sere.inspection.clusters import clusters, cut, otsu, silhouette
from sere.inspection.tree import tree
from tests.inspection.made import made, planted, random


@pytest.mark.parametrize("seed", range(4))
def test_planted_clusters_are_found(seed):
    similarity, labels = planted(sizes=(5, 4, 3, 1), seed=seed)
    found = clusters(similarity)
    assert {frozenset(each) for each in found.members} == {
        frozenset(np.flatnonzero(labels == label).tolist()) for label in range(4)
    }
    assert found.alone == 1
    assert [len(each) for each in found.shared] == [5, 4, 3]
    assert found.silhouette > 0.8
    assert found.within == pytest.approx(0.9, abs=0.02)
    assert found.between == pytest.approx(0.2, abs=0.02)


def test_clusters_are_neighbours_in_the_order():
    similarity, labels = planted(sizes=(6, 6, 6), seed=3)
    along = labels[list(tree(similarity).order)]
    assert np.count_nonzero(np.diff(along)) == 2


def naive(similarity):
    """Average linkage by its definition: merge the two groups with the greatest mean similarity."""
    groups, heights = [[expert] for expert in range(len(similarity))], []
    while len(groups) > 1:
        best = max(
            (
                (similarity[np.ix_(a, b)].mean(), i, j)
                for i, a in enumerate(groups)
                for j, b in enumerate(groups)
                if i < j
            ),
        )
        heights.append(best[0])
        merged = groups[best[1]] + groups[best[2]]
        groups = [each for place, each in enumerate(groups) if place not in best[1:]] + [merged]
    return heights


@pytest.mark.parametrize("seed", range(3))
def test_the_tree_is_that_of_average_linkage(seed):
    similarity = random(14, seed)
    grown = tree(similarity)
    assert [value for *_, value in grown.merges] == pytest.approx(naive(similarity))
    assert sorted(grown.order) == list(range(14))
    seen = sorted(node for left, right, _ in grown.merges for node in (left, right))
    assert seen == list(range(26))  # every node but the root has one parent
    assert all(max(left, right) < 14 + place for place, (left, right, _) in enumerate(grown.merges))


def test_a_tree_of_ties_is_whole():
    grown = tree(np.ones((9, 9)))
    assert sorted(grown.order) == list(range(9))
    assert [len(set(cut(grown, number).tolist())) for number in (1, 4, 9)] == [1, 4, 9]


def test_five_hundred_experts_take_a_moment():
    similarity, labels = planted(sizes=(32,) * 16, seed=1, noise=0.1)
    found = clusters(similarity)
    assert len(found.members) == 16
    assert all(len(set(labels[list(each)])) == 1 for each in found.members)


def test_silhouette_is_its_definition():
    similarity, labels = planted(sizes=(3, 2, 1), noise=0.15)
    apart, scores = 1 - similarity, []
    for expert in range(6):
        groups = {label: [o for o in range(6) if labels[o] == label and o != expert] for label in range(3)}
        if not groups[labels[expert]]:
            continue
        own = apart[expert, groups.pop(labels[expert])].mean()
        other = min(apart[expert, each].mean() for each in groups.values())
        scores.append((other - own) / max(own, other))
    assert silhouette(similarity, labels) == pytest.approx(np.mean(scores))


def test_the_number_of_clusters_can_be_given():
    similarity, _ = planted()
    assert len(clusters(similarity, 5).members) == 5
    one = clusters(similarity, 1)
    assert (len(one.members), one.silhouette, one.between) == (1, None, None)
    each = clusters(similarity, 9)
    assert (each.alone, each.silhouette, each.within) == (9, None, None)
    with pytest.raises(ArtifactError, match="9 experts cannot make 10 clusters"):
        clusters(similarity, 10)


def test_otsu_parts_two_heaps():
    assert otsu(np.array([0.1, 0.9, 0.12, 0.88, 0.11])) == 0.88
    assert otsu(np.array([0.5, 0.5])) == 0.5


def test_a_hub_of_small_outputs_is_named():
    norms = np.arange(1.0, 9.0)
    vectors = np.eye(8) * norms[:, None]
    apart = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1)
    view = inspect(made(1 - apart / apart.max(), norms=norms))[0]
    assert (view.hub.expert, view.hub.share) == (0, 1.0)
    assert view.hub.small == pytest.approx(1)
    said = " ".join(words.of_layers([view]))
    assert "how small its outputs are" in said
    assert "In 1 of 1 layers one expert is the first substitute" in said


def test_all_layers_share_the_histograms_edges_and_count_every_pair():
    one, two = inspect(made(random(5, 1) / 2, random(8, 2)))
    assert one.spread.edges == two.spread.edges
    assert sum(one.spread.counts) == 10
    assert sum(two.spread.counts) == 28
    assert one.spread.at(0.5) == pytest.approx(np.median((random(5, 1) / 2)[np.triu_indices(5, 1)]))


@pytest.mark.parametrize("experts", [1, 2])
def test_layers_of_one_or_two_experts_are_inspected(experts):
    view = inspect(made(random(experts)))[0]
    assert view.num_experts == experts
    assert len(view.substitutes) == (experts if experts > 1 else 0)
    assert words.of_layers([view]) is not None
