"""At equal distinct experts: interpolation within a series, and who is on the front."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sere.evaluation.sweep.estimate import Estimate
from sere.evaluation.sweep.record import Setting, SweepRecord

SMALLEST = 1e-12
"""KL below this counts as this: its logarithm is taken."""
NOTHING = 1e-8
"""KL below this is arithmetic noise; towards it KL itself is interpolated, not its logarithm."""
LEVELS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of the unmodified model's distinct experts at which series are compared."""


@dataclass(frozen=True)
class Standing:
    """One series at one level.

    Attributes:
        series: Its name.
        kl: Interpolated KL over the seeds.
        ratio: KL over the best series' KL, seed by seed; its interval tells whether the difference is one.

    """

    series: str
    kl: Estimate
    ratio: Estimate

    @property
    def best(self) -> bool:
        """Whether it is the series of least KL itself."""
        return set(self.ratio.seeds) == {1.0}

    @property
    def tied(self) -> bool:
        """Whether it cannot be told from the best series: 1 lies in the interval of the ratio."""
        return self.ratio.low <= 1


def interpolated(settings: Iterable[Setting], experts: Sequence[float]) -> Estimate | None:
    """KL of a series at a given number of distinct experts, seed by seed.

    Settings that read more than another one of the series and lose more are left out first. Between two
    neighbours the logarithm of KL is taken as linear in the experts (KL itself where one end loses nothing).
    Nothing is extrapolated.

    Args:
        settings: Of one series and one batch size.
        experts: Where to look, for every seed.

    Returns:
        None if the series has no settings on both sides of it for every seed.

    """
    settings = list(settings)
    kept, values = efficient(settings), []
    for seed, wanted in enumerate(experts):
        points = sorted((each.experts.seeds[seed], each.kl.seeds[seed]) for each in kept)
        value = _between(points, wanted)
        if value is None and points[-1][0] < wanted <= max(each.experts.seeds[seed] for each in settings):
            value = points[-1][1]  # milder settings lose no less than this one
        if value is None:
            return None
        values.append(value)
    return Estimate.of(values)


def efficient(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings that no other one beats in experts and KL both, by rising experts."""
    best, kept = math.inf, []
    for setting in sorted(settings, key=lambda each: (each.experts.mean, each.kl.mean)):
        if setting.kl.mean < best:
            best = setting.kl.mean
            kept.append(setting)
    return kept


def standings(record: SweepRecord, batch_size: int, level: float) -> list[Standing]:
    """Rank all series at ``level`` times the unmodified model's distinct experts, best first.

    Series that do not reach the level from both sides are left out.
    """
    wanted = [level * value for value in record.before(batch_size).seeds]
    found = {name: interpolated(record.at(batch_size, name), wanted) for name in record.series}
    ranked = sorted(
        ((name, kl) for name, kl in found.items() if kl is not None), key=lambda pair: pair[1].mean
    )
    if not ranked:
        return []
    best = ranked[0][1]
    return [Standing(name, kl, ratio(kl, best)) for name, kl in ranked]


def ratio(value: Estimate, base: Estimate) -> Estimate:
    """Geometric mean over seeds of ``value / base``, with the interval of its logarithm."""
    logs = [
        math.log(max(mine, SMALLEST) / max(its, SMALLEST))
        for mine, its in zip(value.seeds, base.seeds, strict=True)
    ]
    log = Estimate.of(logs)
    return Estimate(
        mean=math.exp(log.mean),
        low=math.exp(log.low),
        high=math.exp(log.high),
        seeds=[math.exp(each) for each in logs],
    )


def _between(points: Sequence[tuple[float, float]], wanted: float) -> float | None:
    """Interpolate the second at ``wanted``; None outside of the points."""
    for (left, low), (right, high) in pairwise(points):
        if left <= wanted <= right:
            share = 0.0 if right == left else (wanted - left) / (right - left)
            if min(low, high) < NOTHING:
                return low + share * (high - low)
            return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return next((kl for experts, kl in points if experts == wanted), None)
