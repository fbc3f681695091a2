"""The search: a coarse look at all recipes, a fine one at the best, and the cheapest that surely passes.

What a policy loses falls along its ladder, so the strongest setting within the tolerance is found by halving.
All recipes are looked at on a few shares of the search's text; the :data:`FINALISTS` cheapest are then judged
on all of it, with a bound in place of the mean (successive halving: the budget goes to what is left).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sere.errors import ArtifactError, EngineError, PolicyError, RoutingError
from sere.tuning.compose import UNMODIFIED
from sere.tuning.judge import Judge, Trial
from sere.tuning.ladder import finer, strongest
from sere.tuning.tolerance import Tolerance

SCOUTS = 2
"""Shares on which all recipes are looked at."""
FINALISTS = 4
"""Recipes that are judged on all shares of the search."""
LEAST_GAIN = 0.01
"""Share of the unmodified model's cost that a setting must save; otherwise the model is left alone."""

_REFUSALS = (ArtifactError, EngineError, PolicyError, RoutingError)


@dataclass(frozen=True)
class Scouted:
    """A recipe after the first look.

    Attributes:
        name: The recipe, or what was asked for.
        policy: Its strongest setting within the tolerance on the scouts; None if there is none.
        cost: What that would cost, read between two settings where the ladder can be made finer.
        refused: Why this model or artifact cannot serve it, or None.

    """

    name: str
    policy: str | None = None
    cost: float = math.inf
    refused: str | None = None


@dataclass(frozen=True)
class Found:
    """Outcome of a search at one batch size.

    Attributes:
        best: The cheapest setting whose bound is within the tolerance; None if none is, or it saves nothing.
        scouted: All recipes, the cheapest first.
        finals: Strongest passing setting of each finalist, by the recipe's name.

    """

    best: Trial | None
    scouted: tuple[Scouted, ...]
    finals: Mapping[str, Trial] = field(default_factory=dict)


def search(
    judge: Judge,
    ladders: Mapping[str, Sequence[str]],
    batch_size: int,
    tolerance: Tolerance,
    top_k: int,
    finalists: int = FINALISTS,
) -> Found:
    """Find the cheapest setting within the tolerance at one batch size.

    Args:
        judge: Measures.
        ladders: Settings by recipe, the strongest first.
        batch_size: B.
        tolerance: The limit.
        top_k: K.
        finalists: Recipes that are judged on all shares.

    """
    looked = [_scout(judge, name, ladder, batch_size, tolerance, top_k) for name, ladder in ladders.items()]
    scouted = sorted(looked, key=lambda each: each.cost)
    finals: dict[str, Trial] = {}
    for each in scouted[:finalists]:
        if each.policy is None:
            continue
        fine = finer(ladders[each.name], top_k)
        final = settle(judge, fine, batch_size, tolerance, fine.index(each.policy))
        if final is not None:
            finals[each.name] = final
    paying = [trial for trial in finals.values() if pays(judge, trial)]
    best = min(paying, key=lambda trial: (judge.cost(trial), trial.loss), default=None)
    return Found(best, tuple(scouted), finals)


def pays(judge: Judge, trial: Trial) -> bool:
    """Whether a setting saves :data:`LEAST_GAIN` of what the unmodified model costs."""
    plain = judge.price(UNMODIFIED, trial.batch_size, trial.before)
    return judge.cost(trial) <= (1 - LEAST_GAIN) * plain


def settle(
    judge: Judge, ladder: Sequence[str], batch_size: int, tolerance: Tolerance, start: int
) -> Trial | None:
    """Find the strongest setting of a ladder whose bound on all of the search's text is within the tolerance.

    Args:
        judge: Measures.
        ladder: Settings, the strongest first.
        batch_size: B.
        tolerance: The limit.
        start: Number of the setting to begin at.

    """
    trials: dict[int, Trial | None] = {}

    def passes(at: int) -> bool:
        trials[at] = judge.passing(ladder[at], batch_size, tolerance)
        return trials[at] is not None

    found = strongest(len(ladder), passes, start)
    return None if found is None else trials[found]


def _scout(
    judge: Judge, name: str, ladder: Sequence[str], batch_size: int, tolerance: Tolerance, top_k: int
) -> Scouted:
    trials: dict[int, Trial] = {}

    def passes(at: int) -> bool:
        shares = judge.split.search[:SCOUTS]
        trials[at] = judge.trial(ladder[at], batch_size, tolerance, shares)
        return trials[at].loss <= tolerance.limit

    try:
        found = strongest(len(ladder), passes)
    except _REFUSALS as error:
        return Scouted(name, refused=str(error))
    if found is None:
        return Scouted(name)
    passed, failed = trials[found], trials.get(found - 1)
    experts = passed.experts
    if failed is not None and len(finer(ladder[found - 1 : found + 1], top_k)) > 2:
        experts = _between(failed, passed, tolerance.limit)
    return Scouted(name, passed.policy, judge.price(passed.policy, batch_size, experts))


def _between(failed: Trial, passed: Trial, limit: float) -> float:
    """Experts where the logarithm of the loss, taken as linear in them, comes to the limit."""
    low, high = math.log(max(passed.loss, limit * 1e-3)), math.log(failed.loss)
    share = (math.log(limit) - low) / (high - low) if high > low else 0.0
    return passed.experts + min(1.0, max(0.0, share)) * (failed.experts - passed.experts)
