"""The knob of a recipe: the one parameter that trades quality for speed, and the values worth trying."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sere.routing.policy import Policy

Values = Callable[[int, int], tuple[Any, ...]]
R = TypeVar("R", bound=Callable[..., Policy])


@dataclass(frozen=True)
class Knob:
    """What to sweep.

    Attributes:
        parameter: Name of the recipe's parameter.
        values: Called with E and K, gives settings from the strongest (fewest experts) to the mildest.

    """

    parameter: str
    values: Values


_KNOBS: Final[dict[Callable[..., Policy], Knob]] = {}


def knob(parameter: str, values: Values) -> Callable[[R], R]:
    """Declare the knob of the decorated recipe."""

    def declare(recipe: R) -> R:
        _KNOBS[recipe] = Knob(parameter, values)
        return recipe

    return declare


def knob_of(recipe: Callable[..., Policy]) -> Knob | None:
    """Return the knob of a recipe, or None if it has nothing to sweep."""
    return _KNOBS.get(recipe)


def slots(_experts: int, top_k: int) -> tuple[int, ...]:
    """1 to K - 1: slots of a row."""
    return tuple(range(1, top_k))


def budgets(experts: int, top_k: int) -> tuple[int, ...]:
    """About ten sizes of an active set, from K to E, evenly spaced."""
    count = 10
    sizes = {top_k + round(step * (experts - top_k) / count) for step in range(count)}
    return tuple(sorted(sizes))
