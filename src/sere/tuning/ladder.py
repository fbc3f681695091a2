"""Ladders: settings of one recipe, from the strongest to the mildest, as finely as its knob allows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from sere.artifact import Artifact
from sere.evaluation.sweep.series import chosen, served
from sere.routing import parse_policy

LEFT_OUT = ("least_similar", "random", "adapmoe", "lexi")
"""Recipes that are not searched unless they are asked for: two controls, and two that are ``naee`` and
``top_k`` under other names as long as all layers have one number."""
BETWEEN = 3
"""Settings put between two neighbours of a recipe's own."""
_NUMBER = re.compile(r"(?<==)[0-9.]+(?:e-?[0-9]+)?")


def ladders(
    recipes: Sequence[str] | None, experts: int, top_k: int, artifact: Artifact | None = None
) -> dict[str, tuple[str, ...]]:
    """Coarse ladders by name: the settings that a comparison sweeps.

    Args:
        recipes: As :func:`sere.evaluation.sweep.chosen`; None for all that the artifact can serve but
            :data:`LEFT_OUT`.
        experts: E.
        top_k: K.
        artifact: None for one that holds everything.

    Raises:
        PolicyError: If one is malformed or changes nothing.

    """
    if recipes is None:
        recipes = [name for name in served(artifact)[0] if name not in LEFT_OUT]
    return {line.name: line.policies for line in chosen(recipes, experts, top_k)}


def finer(ladder: Sequence[str], top_k: int) -> tuple[str, ...]:
    """Put up to :data:`BETWEEN` settings between any two neighbours that differ in one number.

    Whole numbers stay whole; others are spaced evenly in their logarithm and rounded to two digits, so that
    the same settings come up again in other searches.
    """
    found: list[str] = []
    for left, right in pairwise(ladder):
        found += [left, *(form for form in _between(left, right) if parse_policy(form).inert(top_k) is None)]
    return tuple(dict.fromkeys([*found, *ladder[-1:]]))


def strongest(count: int, passes: Callable[[int], bool], start: int | None = None) -> int | None:
    """Find the first of ``count`` settings that passes, if from there on all do.

    By halving, or from ``start`` by strides that double and then halving: fewer trials if it is near.
    The result has passed, whether the others behave or not.

    Args:
        count: Number of settings, the strongest first.
        passes: Whether the setting of this number passes; asked once for each.
        start: Where to begin.

    Returns:
        Its number, or None if none was found.

    """
    low, high = 0, count  # all below low fail; high passes, or is past the end
    if start is not None and count:
        stride, at = 1, min(start, count - 1)
        if passes(at):
            high = at
            while high > low:
                at = max(0, high - stride)
                if not passes(at):
                    low = at + 1
                    break
                high, stride = at, 2 * stride
        else:
            low = at + 1
            while low < high:
                at = min(count - 1, low - 1 + stride)
                if passes(at):
                    high = at
                    break
                low, stride = at + 1, 2 * stride
    while low < high:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle + 1
    return high if high < count else None


def _between(left: str, right: str) -> Iterator[str]:
    ours, theirs = _NUMBER.findall(left), _NUMBER.findall(right)
    if _NUMBER.sub("", left) != _NUMBER.sub("", right):
        return
    differing = [at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    if len(differing) != 1:
        return
    at = differing[0]
    whole = ours[at].isdecimal() and theirs[at].isdecimal()
    low, high = float(ours[at]), float(theirs[at])
    for step in range(1, BETWEEN + 1):
        share = step / (BETWEEN + 1)
        if low > 0 and high > 0 and not whole:
            value = float(f"{math.exp((1 - share) * math.log(low) + share * math.log(high)):.2g}")
        else:
            value = (1 - share) * low + share * high
        written = str(round(value)) if whole else f"{value:g}"
        if written in (ours[at], theirs[at]):
            continue
        numbers = iter([*ours[:at], written, *ours[at + 1 :]])
        yield _NUMBER.sub(lambda _found: next(numbers), left)  # noqa: B023 - used at once
