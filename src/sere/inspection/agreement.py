"""How far two similarities of one layer choose the same substitutes, beside what chance would give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sere.inspection.draws import first_drawn, missed
from sere.inspection.spearman import spearman
from sere.inspection.substitutes import places, ranked

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEAST = 3
"""Experts below which there is nothing to choose."""


@dataclass(frozen=True)
class Choice:
    """Substitutes chosen with some experts active, exact over all draws of the active ones.

    Attributes:
        active: Experts to choose from, drawn uniformly from the E - 1 others; E - 1 means all of them.
        same: Chance that both choose the same substitute, mean over experts.
        chance: The same for an order drawn at random, ``1 / active``.
        kept: Of what the first's choice is more similar, by the first, than an active expert taken at random,
            the share that the second's choice has, too: 1 if its choices are as good, 0 if they are as good
            as random. None if no choice is better than another.

    """

    active: int
    same: float
    chance: float
    kept: float | None


@dataclass(frozen=True)
class Agreement:
    """Two similarities of one layer.

    Attributes:
        rank_correlation: Spearman's, between the two orders of the other experts, mean over experts; 0 by
            chance. None where an order does not exist because all similarities are equal.
        choices: First substitutes with all others active, then with fewer.
        popular: Share of equal first substitutes that the two would have if each kept how often it chooses
            every expert and chose independently of whom it replaces.
        moved: (expert, first's substitute, second's, what the second's is less similar, by the first), where
            they differ, the greatest loss first.

    """

    rank_correlation: float | None
    choices: tuple[Choice, ...]
    popular: float
    moved: tuple[tuple[int, int, int, float], ...]


def agreement(one: Floats, two: Floats, actives: tuple[int, ...]) -> Agreement:
    """Compare two similarities of the same experts.

    Args:
        one: Shape [E, E], E at least :data:`LEAST`.
        two: The same shape.
        actives: Sizes of active sets to look at besides all; those of E - 1 and more are left out.

    """
    others = len(one) - 1
    orders = ranked(one), ranked(two)
    ranks = places(orders[0]), places(orders[1])
    better = _better(*ranks)
    sizes = [others, *sorted({size for size in actives if 0 < size < others}, reverse=True)]
    first, second = orders[0][:, 0], orders[1][:, 0]
    experts = np.arange(len(one))
    loss = one[experts, first] - one[experts, second]
    differ = sorted(np.flatnonzero(first != second), key=lambda expert: -loss[expert])
    counts = [np.bincount(each, minlength=len(one)) / len(one) for each in (first, second)]
    return Agreement(
        rank_correlation=spearman(one, two),
        choices=tuple(_choice(one, orders, better, size) for size in sizes),
        popular=float(counts[0] @ counts[1]),
        moved=tuple((int(e), int(first[e]), int(second[e]), float(loss[e])) for e in differ),
    )


def _choice(one: Floats, orders: tuple[Ints, Ints], better: Ints, active: int) -> Choice:
    others = len(one) - 1
    free = missed(others, active)
    # An expert is both's choice if it is drawn and none that either prefers is.
    alike = np.append(free[:-1] - free[1:], 0.0)[better]
    np.fill_diagonal(alike, 0.0)
    likely = first_drawn(others, active)
    chosen = [float((np.take_along_axis(one, order, 1) @ likely).mean()) for order in orders]
    random = float((one.sum(1) - one.diagonal()).mean() / others)
    gain = chosen[0] - random
    return Choice(
        active=active,
        same=float(alike.sum(1).mean()),
        chance=1 / active,
        kept=(chosen[1] - random) / gain if gain > 1e-9 else None,
    )


def _better(one: Ints, two: Ints) -> Ints:
    """Count, for every expert and substitute, the others that either order prefers; shape [E, E]."""
    experts = len(one)
    counts = np.empty((experts, experts), dtype=np.int64)
    for row in range(experts):
        preferred = one[row][:, None] > one[row][None, :]
        preferred |= two[row][:, None] > two[row][None, :]
        counts[row] = np.count_nonzero(preferred, axis=1)
    return counts
