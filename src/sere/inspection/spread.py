"""How the similarities of a layer's pairs are distributed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BINS = 20
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class Spread:
    """Distribution of the similarities of all pairs of different experts.

    Attributes:
        mean: Their mean.
        deviation: Their standard deviation.
        quantiles: (share, value): this share of pairs is at or below the value.
        edges: Edges of the histogram's bins, one more than ``counts``.
        counts: Pairs in each bin.

    """

    mean: float
    deviation: float
    quantiles: tuple[tuple[float, float], ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]

    def at(self, share: float) -> float:
        """Value of one of :data:`QUANTILES`."""
        return dict(self.quantiles)[share]


def spread(pairs: Floats, span: tuple[float, float]) -> Spread:
    """Describe a distribution.

    Args:
        pairs: Similarities, one dimension, at least one.
        span: Least and greatest value of the histogram; give all layers one span to compare them.

    """
    low, high = span
    counts, edges = np.histogram(pairs, bins=BINS, range=(low, high if high > low else low + 1e-6))
    values = np.quantile(pairs, QUANTILES)
    return Spread(
        mean=float(pairs.mean()),
        deviation=float(pairs.std()),
        quantiles=tuple((share, float(value)) for share, value in zip(QUANTILES, values, strict=True)),
        edges=tuple(map(float, edges)),
        counts=tuple(map(int, counts)),
    )
