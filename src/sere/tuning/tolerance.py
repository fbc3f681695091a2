"""What a user is willing to lose, in one line: ``kl<=0.02``, ``agreement>=0.99``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sere.errors import TuningError, did_you_mean
from sere.evaluation.sweep import Point

LOSSES: Final[dict[str, Callable[[Point], float]]] = {
    "kl": lambda point: point.kl,
    "agreement": lambda point: 1 - point.top1,
    "perplexity_change": lambda point: point.perplexity_change,
}
"""Name of a tolerance to the loss that it limits, which is 0 for the unmodified model and least is best."""
ACCURACY: Final = "accuracy_loss"
"""The tolerance that is measured on prompts with one right answer instead of on text."""
_FORM = re.compile(r"\s*([a-z_]+)\s*(<=|>=)\s*([0-9.]+(?:e-?[0-9]+)?)\s*(%|pt)?\s*")
_FLOORS: Final = ("agreement",)
"""Those whose limit is from below; the loss is what is missing to 1."""


@dataclass(frozen=True)
class Tolerance:
    """A limit on one loss.

    Attributes:
        text: As the user wrote it.
        kind: Key of :data:`LOSSES`, or :data:`ACCURACY`.
        limit: Most loss: nats per token for ``kl``, a share in (0, 1) for the others.

    """

    text: str
    kind: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Tolerance:
        """Read ``kl<=0.02``, ``agreement>=0.99`` or ``99%``, ``perplexity_change<=1%``.

        A tolerance on accuracy is in points of a hundred, ``accuracy_loss<=0.5pt``.

        Raises:
            TuningError: If it has another form, names nothing known, or leaves no room for any loss.

        """
        match = _FORM.fullmatch(text.lower())
        if match is None:
            raise TuningError(
                f"a tolerance cannot be {text!r}. Write for example 'kl<=0.02' or 'agreement>=0.99'."
            )
        kind, sign, number, unit = match.groups()
        if kind not in (*LOSSES, ACCURACY):
            known = did_you_mean(kind, [*LOSSES, ACCURACY])
            raise TuningError(f"there is no tolerance on {kind!r}.{known}")
        wanted = ">=" if kind in _FLOORS else "<="
        if sign != wanted:
            raise TuningError(f"{text!r} has no limit on a loss. Write {kind}{wanted}{number}{unit or ''}.")
        try:
            value = float(number) / (100 if unit else 1)
        except ValueError as error:
            raise TuningError(f"{text!r}: {number!r} is no number.") from error
        limit = round(1 - value, 12) if kind in _FLOORS else value
        if not limit > 0 or (kind in _FLOORS and limit >= 1):
            raise TuningError(
                f"{text!r} tolerates {'nothing' if limit <= 0 else 'everything'}. "
                + ("Serve the unmodified model." if limit <= 0 else "Ask for more agreement than that.")
            )
        return cls(text.strip(), kind, limit)

    @property
    def on_prompts(self) -> bool:
        """Whether it takes prompts with answers, and not text, to measure the loss."""
        return self.kind == ACCURACY

    def loss(self, point: Point) -> float:
        """Return the loss of a measured point; there is none for a tolerance on prompts."""
        return LOSSES[self.kind](point)
