"""One measured setting, in the form that all kinds of record share."""

from __future__ import annotations

from dataclasses import dataclass

CONTROLS = ("unmodified", "none")


@dataclass(frozen=True)
class Value:
    """A figure with the ends of its interval; the ends are the figure where none is known."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, ends: tuple[float, float] | None = None) -> Value:
        """Put a figure and its interval together."""
        low, high = ends or (value, value)
        return cls(value, low, high)

    @property
    def spread(self) -> bool:
        """Whether there is an interval."""
        return self.low < self.high


@dataclass(frozen=True)
class Finding:
    """What was measured of one policy in one load.

    Attributes:
        source: Name of the record's file.
        policy: Short form.
        load: The load in words: ``batch 16``, ``8 requests/s``.
        batch: Live sequences, None where a load gives none.
        stand_in: Whether the model has random weights, so that only speed is meaningful.
        experts: Distinct experts per layer and step.
        before: Those of the unmodified model in the same run.
        of: E.
        kl: KL from the unmodified model, nats per token.
        top1: Share of tokens with the same first choice.
        perplexity_change: Relative change.
        tasks: Share of tasks solved.
        kept: ``tasks`` over the unmodified model's; without tasks the perplexities' ratio.
        speed: Speed over the unmodified model's.
        spread: What the interval of ``speed`` is, in words.

    """

    source: str
    policy: str
    load: str
    batch: int | None = None
    stand_in: bool = False
    experts: float | None = None
    before: float | None = None
    of: int | None = None
    kl: Value | None = None
    top1: float | None = None
    perplexity_change: Value | None = None
    tasks: Value | None = None
    kept: float | None = None
    speed: Value | None = None
    spread: str = "least to greatest round"

    @property
    def control(self) -> bool:
        """Whether it is the unmodified model or the policy that changes nothing."""
        return self.policy in CONTROLS

    @property
    def share(self) -> float | None:
        """Distinct experts over the unmodified model's."""
        return self.experts / self.before if self.experts is not None and self.before else None
