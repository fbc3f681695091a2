"""Estimates over seeds: what disjoint texts give, and how far their mean may be off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from sere.evaluation.record import Part

_STUDENT = {
    0.975: (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    0.95: (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
}
_NORMAL = {0.975: 1.959964, 0.95: 1.644854}


class Estimate(Part):
    """A mean over seeds with its 95% interval.

    Attributes:
        mean: Mean.
        low: Lower end; the mean itself if there is one seed, which shows no spread.
        high: Upper end.
        seeds: The values, one a seed.

    """

    mean: float
    low: float
    high: float
    seeds: list[float]

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Student's interval of the mean; seeds share no text, so their values are independent."""
        mean = fmean(values)
        half = 0.0
        if len(values) > 1:
            half = student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
        return cls(mean=mean, low=mean - half, high=mean + half, seeds=list(values))


def student(freedom: int, *, one_sided: bool = False) -> float:
    """Quantile of Student's distribution for a 95% interval: 0.975, or 0.95 for a bound on one side.

    Exact to three digits up to 10 degrees of freedom, by a series of Fisher's beyond (error under 0.001).

    Args:
        freedom: Degrees of freedom, at least 1.
        one_sided: Whether only one end is wanted.

    Source: M. Abramowitz and I. Stegun, Handbook of Mathematical Functions, 26.7.5.

    """
    level = 0.95 if one_sided else 0.975
    if freedom <= len(_STUDENT[level]):
        return _STUDENT[level][freedom - 1]
    z = _NORMAL[level]
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
