"""The guard: steps in which re-routing would not pay for itself stay as routed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sere.errors import PolicyError

GuardLike = int | Sequence[int | None]
"""A least number of rows, or a pair of least and most, of which the second may be None."""


NEVER: Final = 2**63 - 1
"""More rows than any step has."""


@dataclass(frozen=True)
class Guard:
    """Which steps are re-routed, by their number of rows.

    The host knows that number from a tensor's shape, so nothing waits for the device, and a captured graph,
    whose number of rows is fixed, holds one decision.

    Attributes:
        least: Steps of fewer rows stay as routed, at least 1.
        most: Steps of more rows stay as routed, too; None for no such limit.
        gaps: Ranges of rows between the two that stay as routed, first and last of each.

    Raises:
        PolicyError: If the limits are out of range or of another type.

    """

    least: int = 1
    most: int | None = None
    gaps: tuple[tuple[int, int], ...] = ()

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
        inside = rows >= self.least and (self.most is None or rows <= self.most)
        return inside and not any(first <= rows <= last for first, last in self.gaps)

    def __str__(self) -> str:
        if self.least == NEVER:
            return "all steps stay as routed: re-routing would cost more than it saves"
        if self.gaps:
            between = ", ".join(
                f"{first} to {last}" if first < last else str(first) for first, last in self.gaps
            )
            outer = Guard(self.least, self.most)
            return f"{outer}, and so do those of {between}"
        upper = "" if self.most is None else f" or more than {self.most}"
        return f"steps of fewer than {self.least}{upper} rows stay as routed"
