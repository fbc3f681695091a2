"""Clusters of a layer: the tree cut at the similarity that tells alike pairs from the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sere.errors import ArtifactError
from sere.inspection.substitutes import pairs
from sere.inspection.tree import Tree, tree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Clusters:
    """Groups of experts that are alike, and experts that stand alone.

    Attributes:
        members: Experts of each cluster, clusters and experts in the order of the tree; one expert may be a
            cluster of its own.
        level: Similarity at which the tree was cut; None where the number of clusters was given.
        silhouette: Mean silhouette (Rousseeuw 1987) of the experts that share a cluster, -1 to 1: how much
            closer they are to their own cluster than to the next. Near 0 the groups are arbitrary. None if
            there is one cluster or no shared one.
        within: Mean similarity of pairs in one cluster; None if no cluster is shared.
        between: Mean similarity of pairs in different clusters; None for one cluster.
        tree: The whole tree.

    """

    members: tuple[tuple[int, ...], ...]
    level: float | None
    silhouette: float | None
    within: float | None
    between: float | None
    tree: Tree

    @property
    def shared(self) -> tuple[tuple[int, ...], ...]:
        """Clusters of at least two experts, the largest first."""
        return tuple(sorted((each for each in self.members if len(each) > 1), key=len, reverse=True))

    @property
    def alone(self) -> int:
        """Experts in no cluster but their own."""
        return sum(len(each) == 1 for each in self.members)


def clusters(similarity: Floats, number: int | None = None) -> Clusters:
    """Cluster a layer's experts.

    Args:
        similarity: Symmetric, shape [E, E].
        number: Clusters; None cuts the tree at :func:`otsu`'s level.

    Raises:
        ArtifactError: If the layer has not that many experts.

    """
    experts = len(similarity)
    if number is not None and not 1 <= number <= experts:
        raise ArtifactError(f"{experts} experts cannot make {number} clusters. Give 1 to {experts}.")
    grown = tree(similarity)
    level = None
    if number is None:
        level = otsu(pairs(similarity))
        number = experts - sum(value >= level for _, _, value in grown.merges)
    labels = cut(grown, number)
    same = labels[:, None] == labels[None, :]
    pair = ~np.eye(experts, dtype=bool)
    order = np.array(grown.order)
    return Clusters(
        members=tuple(tuple(map(int, order[labels[order] == label])) for label in range(number)),
        level=level,
        silhouette=silhouette(similarity, labels) if 1 < number < experts else None,
        within=float(similarity[same & pair].mean()) if number < experts else None,
        between=float(similarity[~same].mean()) if number > 1 else None,
        tree=grown,
    )


def otsu(values: Floats) -> float:
    """Split values in two classes of the greatest variance between them; return the upper one's least value.

    Source: N. Otsu, "A threshold selection method from gray-level histograms", 1979, over the values
    themselves instead of a histogram. Equal values are all in the upper class.
    """
    ascending = np.sort(values)
    below = np.arange(1, len(ascending))
    sums = np.cumsum(ascending)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (len(ascending) - below)
    variance = np.where(np.diff(ascending) > 0, below * (len(ascending) - below) * (high - low) ** 2, 0.0)
    split = int(variance.argmax()) + 1 if variance.any() else 0
    return float(ascending[split])


def cut(grown: Tree, number: int) -> Ints:
    """Undo the last merges until ``number`` clusters are left.

    Returns:
        The cluster of each expert, shape [E], numbered from 0 along the tree's order.

    """
    held: dict[int, list[int]] = {expert: [expert] for expert in range(grown.experts)}
    for place, (left, right, _) in enumerate(grown.merges[: grown.experts - number]):
        held[grown.experts + place] = held.pop(left) + held.pop(right)
    labels = np.empty(grown.experts, dtype=np.int64)
    for node, experts in held.items():
        labels[experts] = node
    along = dict.fromkeys(map(int, labels[list(grown.order)]))
    number_of = {label: place for place, label in enumerate(along)}
    return np.array([number_of[int(label)] for label in labels], dtype=np.int64)


def silhouette(similarity: Floats, labels: Ints) -> float:
    """Mean of ``(b - a) / max(a, b)`` over experts that share a cluster; distances are 1 - similarity.

    a is an expert's mean distance to its own cluster's others, b the least mean distance to another cluster.

    Args:
        similarity: Shape [E, E].
        labels: Cluster of each expert, shape [E], from 0 on; at least two, at least one of them shared.

    """
    apart = 1 - similarity
    np.fill_diagonal(apart, 0.0)
    member = np.eye(int(labels.max()) + 1)[labels]
    sizes = member.sum(0)
    sums = apart @ member
    shared = np.flatnonzero(sizes[labels] > 1)
    own = sums[shared, labels[shared]] / (sizes[labels[shared]] - 1)
    other = np.where(member > 0, np.inf, sums / sizes).min(1)[shared]
    larger = np.maximum(own, other)
    scores = np.divide(other - own, larger, out=np.zeros(len(shared)), where=larger > 0)
    return float(scores.mean())
