"""The guard: steps in which re-routing would not pay for itself stay as routed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sere.errors import PolicyError

GuardLike = int | Sequence[int | None]
"""A least number of rows, or a pair of least and most, of which the second may be None."""


@dataclass(frozen=True)
class Guard:
    """Which steps are re-routed, by their number of rows.

    The host knows that number from a tensor's shape, so nothing waits for the device, and a captured graph,
    whose number of rows is fixed, holds one decision.

    Attributes:
        least: Steps of fewer rows stay as routed, at least 1.
        most: Steps of more rows stay as routed, too; None for no such limit.

    Raises:
        PolicyError: If the limits are out of range or of another type.

    """

    least: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        for value in (self.least, self.most):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise PolicyError(f"a guard's limits are whole numbers of rows from 1 on, got {value!r}.")
        if self.most is not None and self.most < self.least:
            raise PolicyError(f"a guard from {self.least} to {self.most} rows lets no step through.")

    @classmethod
    def of(cls, given: Guard | GuardLike) -> Guard:
        """Read a guard from what a user writes: ``8``, or ``[8, 256]``, or ``[8, null]``.

        Raises:
            PolicyError: If it is neither.

        """
        if isinstance(given, Guard):
            return given
        if isinstance(given, int):
            return cls(given)
        if isinstance(given, list | tuple) and len(given) == 2:
            least, most = given
            return cls(1 if least is None else least, most)
        raise PolicyError(
            f"a guard is a number of rows or a pair of them, not {given!r}. Write 8 or [8, 256]."
        )

    def passes(self, rows: int) -> bool:
        """Whether a step of ``rows`` rows is re-routed."""
        return rows >= self.least and (self.most is None or rows <= self.most)

    def __str__(self) -> str:
        upper = "" if self.most is None else f" or more than {self.most}"
        return f"steps of fewer than {self.least}{upper} rows stay as routed"
