"""Which expert stands in for which: every expert's substitutes from the most similar on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def ranked(similarity: Floats) -> Ints:
    """Order all other experts by their similarity to each expert; equal ones by the lowest id, as fills do.

    Args:
        similarity: Shape [E, E].

    Returns:
        Expert ids, shape [E, E - 1], the most similar first.

    """
    others = similarity.copy()
    np.fill_diagonal(others, -np.inf)
    return np.argsort(-others, axis=1, kind="stable")[:, :-1]


def places(order: Ints) -> Ints:
    """Turn :func:`ranked` round: the rank of every expert for every expert.

    Returns:
        Shape [E, E], 0 for the best substitute; E - 1 on the diagonal, since none stands in for itself.

    """
    experts = order.shape[0]
    found = np.full((experts, experts), experts - 1, dtype=np.int64)
    np.put_along_axis(found, order, np.broadcast_to(np.arange(experts - 1), order.shape), axis=1)
    return found


def best(similarity: Floats) -> Floats:
    """Similarity of every expert to its best substitute, shape [E]; minus infinity if it is the only one."""
    others = similarity.copy()
    np.fill_diagonal(others, -np.inf)
    return np.asarray(others.max(1))


def pairs(similarity: Floats) -> Floats:
    """Similarities of all pairs of different experts, shape [E (E - 1) / 2]; one 1.0 if there is no pair."""
    rows, columns = np.triu_indices(len(similarity), 1)
    return similarity[rows, columns] if len(rows) else np.ones(1)
