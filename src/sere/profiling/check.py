"""Predictions beside measured speed: the record of ``benchmarks/cost_model.py``."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import Literal

from sere.artifact import PolicyCost, predict_speedup
from sere.artifact.cost import predicted
from sere.evaluation.files import write_text
from sere.evaluation.record import Part
from sere.evaluation.speed import Speed
from sere.profiling.record import ProfileRecord


class CheckedSpeed(Part):
    """One policy at one batch size.

    Attributes:
        policy: Short form.
        rows: Batch size.
        before: Distinct experts per layer that the router named in the measured steps.
        after: Those that were read.
        measured: Speed over the unmodified model's, median over rounds.
        low: Least ratio of a round.
        high: Greatest.
        predicted: What the profile says of this policy at this size.
        counted: The same from the experts counted in the measured steps.

    """

    policy: str
    rows: int
    before: float
    after: float
    measured: float
    low: float
    high: float
    predicted: float
    counted: float

    @property
    def error(self) -> float:
        """``predicted / measured - 1``."""
        return self.predicted / self.measured - 1


class CostCheck(Part):
    """A profile, and measured speed at batch sizes that it never saw.

    Attributes:
        kind: Always ``sere-cost-check``.
        version: Version of this form.
        stand_in: What the model is, in words; it has random weights.
        profile: The profile, with its run.
        rounds: Rounds of each measured speed.
        steps: Timed steps of a round.
        results: Batch size by batch size.
        seconds: Duration of everything.

    """

    kind: Literal["sere-cost-check"] = "sere-cost-check"
    version: Literal[1] = 1
    stand_in: str
    profile: ProfileRecord
    rounds: int
    steps: int
    results: list[CheckedSpeed]
    seconds: float

    @property
    def error(self) -> float:
        """Median size of the relative errors; NaN without results."""
        return median(abs(each.error) for each in self.results) if self.results else math.nan

    @property
    def worst(self) -> float:
        """Largest size of them; NaN without results."""
        return max((abs(each.error) for each in self.results), default=math.nan)

    @property
    def sided(self) -> int:
        """Results for which prediction and measurement lie on the same side of 1."""
        return sum((each.predicted > 1) == (each.measured > 1) for each in self.results)

    def save(self, path: str | Path) -> None:
        """Write JSON, whole or not at all.

        Raises:
            DataError: If ``path`` cannot be written.

        """
        write_text(path, self.model_dump_json(indent=1) + "\n")


def checked(profile: ProfileRecord, policy: PolicyCost, rows: int, speed: Speed) -> CheckedSpeed:
    """Put a measured speed beside what the profile says of the policy at that size."""
    before, after = speed.experts.mean_before, speed.experts.mean_after
    overhead = policy.at(rows).overhead
    return CheckedSpeed(
        policy=policy.policy,
        rows=rows,
        before=before,
        after=after,
        measured=speed.ratio,
        low=speed.ratio_low,
        high=speed.ratio_high,
        predicted=predicted(profile.cost, policy, rows),
        counted=predict_speedup(profile.cost, rows, before, after, overhead),
    )
