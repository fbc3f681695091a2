"""Chances of a random active set: which experts a step activates is modelled as a uniform draw."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def missed(total: int, drawn: int) -> Floats:
    """Chance that ``drawn`` of ``total`` experts hold none of n given ones, for n from 0 to ``total``.

    Hypergeometric: ``C(total - n, drawn) / C(total, drawn)``.

    Args:
        total: Experts to draw from.
        drawn: Experts drawn, 1 to ``total``.

    Returns:
        Shape [total + 1], float64; falls from 1 to 0.

    """
    chances = np.zeros(total + 1)
    chances[0] = 1.0
    for n in range(total - drawn):
        chances[n + 1] = chances[n] * (total - n - drawn) / (total - n)
    return chances


def first_drawn(total: int, drawn: int) -> Floats:
    """Chance that the best drawn expert is the one of rank r, for r from 0 (the best) to ``total`` - 1.

    Returns:
        Shape [total], float64; sums to 1.

    """
    return -np.diff(missed(total, drawn))
