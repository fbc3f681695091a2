"""Spearman's rank correlation between two orders of the other experts, for each expert."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def spearman(one: Floats, two: Floats) -> float | None:
    """Correlate the ranks of the other experts, expert by expert; equal values share the mean of their ranks.

    Args:
        one: Shape [E, E]; row u says how alike every expert is to u. The diagonal is left out.
        two: The same of another source.

    Returns:
        Mean over the experts for which both orders exist (not all values are equal); None if for none.

    """
    experts = len(one)
    away = ~np.eye(experts, dtype=bool)
    left, right = (_ranks(each[away].reshape(experts, -1)) for each in (one, two))
    left, right = left - left.mean(1, keepdims=True), right - right.mean(1, keepdims=True)
    norms = np.sqrt((left**2).sum(1) * (right**2).sum(1))
    there = norms > 0
    if not there.any():
        return None
    return float(((left * right).sum(1)[there] / norms[there]).mean())


def _ranks(values: Floats) -> Floats:
    found = np.empty_like(values)
    for place, row in enumerate(values):
        _, inverse, counts = np.unique(row, return_inverse=True, return_counts=True)
        found[place] = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return found
