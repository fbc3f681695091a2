"""Hierarchical clustering of a layer's experts by average linkage, from their similarities alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tree:
    """A dendrogram.

    Attributes:
        experts: E.
        merges: E - 1 merges from the most alike on: (node, node, mean similarity between the two). Nodes
            below E are experts; the m-th merge makes node E + m.
        order: Every expert once, so that no branches cross and neighbours are alike.

    """

    experts: int
    merges: tuple[tuple[int, int, float], ...]
    order: tuple[int, ...]


def tree(similarity: Floats) -> Tree:
    """Cluster, in time of order E^2, by chains of nearest neighbours.

    Two clusters are as similar as the mean over all pairs between them (UPGMA). Equal similarities: the
    lowest id first.

    Args:
        similarity: Symmetric, shape [E, E].

    Source: F. Murtagh, "Complexities of hierarchic clustering algorithms", 1984 (the chain algorithm).

    """
    experts = len(similarity)
    merges = _sorted(experts, _chain(similarity))
    return Tree(experts, merges, _order(similarity, merges))


def _chain(similarity: Floats) -> list[tuple[int, int, float]]:
    """List merges as (place, place, similarity) in the order found; the higher place takes the pair."""
    between = similarity.astype(np.float64)
    np.fill_diagonal(between, -np.inf)
    sizes = np.ones(len(between))
    alive = np.ones(len(between), dtype=bool)
    heights = np.full(
        len(between), np.inf
    )  # of each place's last merge; rounding must not lift a later one above
    found: list[tuple[int, int, float]] = []
    chain: list[int] = []
    while len(found) < len(between) - 1:
        if not chain:
            chain.append(int(np.flatnonzero(alive)[0]))
        last = chain[-1]
        nearest = int(between[last].argmax())
        before = chain[-2] if len(chain) > 1 else nearest
        if len(chain) > 1 and between[last, before] >= between[last, nearest]:
            chain = chain[:-2]
            low, high = sorted((last, before))
            heights[high] = min(between[low, high], heights[low], heights[high])
            found.append((low, high, float(heights[high])))
            _merge(between, sizes, low, high)
            alive[low] = False
        else:
            chain.append(nearest)
    return found


def _merge(between: Floats, sizes: Floats, low: int, high: int) -> None:
    """Make ``high`` the union of the two, and ``low`` unreachable."""
    total = sizes[low] + sizes[high]
    mean = (sizes[low] * between[low] + sizes[high] * between[high]) / total
    between[high], between[:, high] = mean, mean
    between[low], between[:, low] = -np.inf, -np.inf
    between[high, high] = -np.inf
    sizes[high] = total


def _sorted(experts: int, found: list[tuple[int, int, float]]) -> tuple[tuple[int, int, float], ...]:
    """Sort merges by similarity and name their nodes; a merge never precedes those below it."""
    node = list(range(experts))  # of each place, the node that it stands for now
    merges = []
    for number, (low, high, value) in enumerate(sorted(found, key=lambda each: -each[2])):
        left, right = sorted((node[low], node[high]))
        merges.append((left, right, value))
        node[high] = experts + number
    return tuple(merges)


def _order(similarity: Floats, merges: tuple[tuple[int, int, float], ...]) -> tuple[int, ...]:
    """Lay the branches out, each turned so that the two experts that meet are the most alike."""
    branches: dict[int, list[int]] = {expert: [expert] for expert in range(len(similarity))}
    for number, (left, right, _) in enumerate(merges):
        one, two = branches.pop(left), branches.pop(right)
        ways = [(one, two), (one, two[::-1]), (one[::-1], two), (one[::-1], two[::-1])]
        first, second = max(ways, key=lambda way: similarity[way[0][-1], way[1][0]])
        branches[len(similarity) + number] = first + second
    return tuple(next(iter(branches.values())))
