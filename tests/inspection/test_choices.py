"""Agreement, critical shares and draws are those that counting all active sets gives."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from sere.errors import ArtifactError
from sere.inspection import compare
from sere.inspection.agreement import agreement
from sere.inspection.critical import critical
from sere.inspection.draws import first_drawn, missed
from sere.inspection.spearman import spearman
from sere.inspection.substitutes import ranked
from tests.inspection.made import made, random


def enumerated(one, two, active):
    """(same, kept) by looking up both substitutes in every active set of every expert."""
    same, here, there, mean = [], [], [], []
    for expert in range(len(one)):
        others = [other for other in range(len(one)) if other != expert]
        for chosen in combinations(others, active):
            first, second = (max(chosen, key=lambda v, s=s: (s[expert, v], -v)) for s in (one, two))
            same.append(first == second)
            here.append(one[expert, first])
            there.append(one[expert, second])
            mean.append(one[expert, list(chosen)].mean())
    gain = np.mean(here) - np.mean(mean)
    return np.mean(same), (np.mean(there) - np.mean(mean)) / gain if active > 1 else None


@pytest.mark.parametrize("active", [1, 2, 3, 6])
def test_agreement_is_that_of_all_active_sets(active):
    one, two = random(7, 1), random(7, 2)
    two = (one + two) / 2
    found = {choice.active: choice for choice in agreement(one, two, (active,)).choices}
    same, kept = enumerated(one, two, active)
    assert found[active].same == pytest.approx(same)
    assert found[active].chance == 1 / active
    if active > 1:
        assert found[active].kept == pytest.approx(kept)
    else:
        assert found[active].kept is None


def test_ties_go_to_the_lowest_expert_as_in_a_fill():
    tied = np.full((4, 4), 0.5)
    assert ranked(tied)[:, 0].tolist() == [1, 0, 0, 0]
    found = agreement(tied, tied, (2,))
    assert [choice.same for choice in found.choices] == [1.0, 1.0]
    assert found.choices[0].kept is None  # no substitute is better than another
    assert found.rank_correlation is None


def test_orders_drawn_at_random_agree_as_often_as_chance_says():
    found = [agreement(random(24, seed), random(24, seed + 999), (4,)) for seed in range(40)]
    for place, chance in ((0, 1 / 23), (1, 1 / 4)):
        same = np.mean([each.choices[place].same for each in found])
        assert found[0].choices[place].chance == pytest.approx(chance)
        assert same == pytest.approx(chance, abs=0.02)
        assert np.mean([each.choices[place].kept for each in found]) == pytest.approx(0, abs=0.06)
    assert np.mean([each.rank_correlation for each in found]) == pytest.approx(0, abs=0.05)


def test_the_same_agrees_wholly_and_the_reverse_not_at_all():
    one = random(9)
    equal, reverse = agreement(one, one, (2,)), agreement(one, -one, (2,))
    assert equal.rank_correlation == pytest.approx(1)
    assert [(choice.same, choice.kept) for choice in equal.choices] == [
        (pytest.approx(1), pytest.approx(1))
    ] * 2
    assert equal.moved == ()
    assert reverse.rank_correlation == pytest.approx(-1)
    assert [choice.same for choice in reverse.choices] == pytest.approx([0, 0])
    assert len(reverse.moved) == 9
    losses = [loss for *_, loss in reverse.moved]
    assert losses == sorted(losses, reverse=True)


def test_popular_agreement_counts_what_two_hubs_share_by_themselves():
    hub = np.full((6, 6), 0.1)
    hub[2] = hub[:, 2] = 0.9
    # Five experts choose expert 2, expert 2 chooses expert 0: (5/6)^2 + (1/6)^2.
    assert agreement(hub, hub, ()).popular == pytest.approx(26 / 36)


def test_chances_of_draws_are_hypergeometric():
    assert missed(9, 4) == pytest.approx([comb(9 - n, 4) / comb(9, 4) for n in range(10)])
    assert first_drawn(9, 4).sum() == pytest.approx(1)
    assert first_drawn(5, 5) == pytest.approx([1, 0, 0, 0, 0])
    assert first_drawn(4, 1) == pytest.approx([0.25] * 4)


def test_critical_share_is_that_of_all_active_sets():
    similarity = random(7, 3)
    found = critical(similarity, 0.6, 3)
    kept = [
        all(similarity[expert, other] < np.float32(0.6) for other in chosen)
        for expert in range(7)
        for chosen in combinations([other for other in range(7) if other != expert], 3)
    ]
    assert found.share == pytest.approx(np.mean(kept))
    alone = [e for e in range(7) if np.delete(similarity[e], e).max() < 0.6]
    assert list(found.experts) == alone


def test_a_similarity_equal_to_the_threshold_in_float32_reaches_it():
    value = np.float64(np.float32(0.3))  # above 0.3 in float64
    similarity = np.full((3, 3), value)
    assert critical(similarity, 0.3, 1).experts == ()
    assert critical(np.full((3, 3), np.float64(np.float32(0.7))), 0.7, 1).experts == ()  # below it in float64


def test_rank_correlation_shares_the_ranks_of_equal_values():
    one = np.zeros((4, 4))
    one[0] = [9, 1, 1, 2]
    two = np.zeros((4, 4))
    two[0] = [9, 1, 2, 3]
    # Only expert 0 has orders: ranks 1.5, 1.5, 3 against 1, 2, 3.
    assert spearman(one, two) == pytest.approx(1.5 / np.sqrt(1.5 * 2))


def test_models_of_other_shape_or_name_are_refused_by_name():
    one = made(random(5))
    with pytest.raises(ArtifactError, match=r"different shape: some/model .* and other/wide"):
        compare(one, made(random(5), hidden=64, model="other/wide"))
    with pytest.raises(ArtifactError, match=r"different shape"):
        compare(one, made(random(6)), mixed=True)
    with pytest.raises(ArtifactError, match=r"different models: some/model .* and some/tuned .*--mixed"):
        compare(one, made(random(5, 1), model="some/tuned"))
    assert len(compare(one, made(random(5, 1), model="some/tuned"), mixed=True)) == 1
    assert len(compare(one, made(random(5, 1), model="/disk/model/"))) == 1  # the same model in a folder


def test_a_metric_or_layer_that_is_not_there_is_named():
    one, two = made(random(5)), made(random(5), metric="cka_linear_biased")
    with pytest.raises(ArtifactError, match="the second artifact has no 'frobenius'"):
        compare(one, two)
    with pytest.raises(ArtifactError, match="no layer number 7"):
        compare(one, made(random(5, 1)), layers=[7])
    with pytest.raises(ArtifactError, match="fewer than three experts"):
        compare(made(random(2)), made(random(2, 1)))
    with pytest.raises(ArtifactError, match="threshold of 0"):
        compare(one, one, thresholds=(0,))
