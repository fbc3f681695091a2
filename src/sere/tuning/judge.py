"""What a setting loses and costs on the texts of the search, measured share by share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from sere.evaluation.sweep import Evaluator, Point
from sere.evaluation.sweep.estimate import student
from sere.tuning.split import Split
from sere.tuning.tolerance import Tolerance

StepTime = Callable[[str, int, float], float]
"""Predicted seconds of a decoding step, given a policy's short form (``none`` for the unmodified model), the
batch size, and distinct experts per layer."""
Say = Callable[[str], None]
RACE = 3
"""Shares after which a setting that clearly loses too much is given up."""


@dataclass(frozen=True)
class Trial:
    """One setting at one batch size on some shares.

    Attributes:
        policy: Short form.
        batch_size: B, live sequences.
        points: One a share.
        losses: Loss on each share, or group of prompts.
        bound: Upper bound of the loss on held-out texts or prompts, at 95%; infinite where it was not taken.

    """

    policy: str
    batch_size: int
    points: tuple[Point, ...]
    losses: tuple[float, ...]
    bound: float = math.inf

    @property
    def loss(self) -> float:
        """Mean loss."""
        return fmean(self.losses)

    @property
    def experts(self) -> float:
        """Distinct experts read per layer and step, mean."""
        return fmean(point.after for point in self.points)

    @property
    def before(self) -> float:
        """Distinct experts that the router chose, mean."""
        return fmean(point.before for point in self.points)


class Judge:
    """Measures settings on the search's shares, by the evaluator, which measures nothing twice.

    Args:
        evaluator: Model, texts and cache.
        split: Which shares the search may see.
        step_time: Predicts the time of a step; None to count distinct experts instead.
        say: Told what is about to be measured.

    """

    def __init__(
        self,
        evaluator: Evaluator,
        split: Split,
        *,
        step_time: StepTime | None = None,
        say: Say = lambda _text: None,
    ) -> None:
        self.evaluator, self.split = evaluator, split
        self._step_time, self._say = step_time, say
        self.seen: set[tuple[str, int, int]] = set()

    @property
    def timed(self) -> bool:
        """Whether the time of a step is predicted."""
        return self._step_time is not None

    def trial(self, policy: str, batch_size: int, tolerance: Tolerance, shares: Sequence[int]) -> Trial:
        """Measure on ``shares``; errors as :meth:`sere.evaluation.sweep.Evaluator.measure`."""
        points = tuple(self._point(policy, batch_size, share) for share in shares)
        return Trial(policy, batch_size, points, tuple(map(tolerance.loss, points)))

    def passing(self, policy: str, batch_size: int, tolerance: Tolerance) -> Trial | None:
        """Measure on all shares of the search; None if the bound on its loss is above the tolerance.

        A setting whose mean loss is surely above it is given up after a few shares.
        """
        shares = self.split.search
        for count in range(RACE, len(shares)):
            part = self.trial(policy, batch_size, tolerance, shares[:count]).losses
            least = fmean(part) - student(count - 1, one_sided=True) * stdev(part) / math.sqrt(count)
            if least > tolerance.limit:
                return None
        whole = self.trial(policy, batch_size, tolerance, shares)
        whole = dataclasses.replace(whole, bound=self.split.bound(whole.losses))
        return whole if whole.bound <= tolerance.limit else None

    def cost(self, trial: Trial) -> float:
        """Return what is to be made least: predicted seconds of a step, or distinct experts read."""
        return self.price(trial.policy, trial.batch_size, trial.experts)

    def price(self, policy: str, batch_size: int, experts: float) -> float:
        """Cost of a step of ``experts`` distinct experts per layer."""
        return experts if self._step_time is None else self._step_time(policy, batch_size, experts)

    def _point(self, policy: str, batch_size: int, share: int) -> Point:
        self._say(f"batch {batch_size}: {policy}")
        self.seen.add((policy, batch_size, share))
        return self.evaluator.measure(policy, batch_size, share)
