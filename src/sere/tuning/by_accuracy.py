"""The search for a tolerance on accuracy: KL finds the settings, accuracy says how far one may go.

Real decoding is too slow to try all recipes with, and says too little of each. So for falling limits on KL
the best setting is found on text, and the first of these whose loss of accuracy is surely within the
tolerance is taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from sere.tuning.accuracy import Accuracy
from sere.tuning.judge import Judge
from sere.tuning.ladder import strongest
from sere.tuning.search import Found, search
from sere.tuning.tolerance import Tolerance

LEVELS = tuple(round(0.4 / 2 ** (step / 2), 4) for step in range(16))
"""Limits on KL that are tried, nats per token, from 0.4 to 0.002."""


def search_by_accuracy(
    judge: Judge,
    accuracy: Accuracy,
    ladders: Mapping[str, Sequence[str]],
    batch_size: int,
    tolerance: Tolerance,
    top_k: int,
) -> Found:
    """Find the cheapest setting within a tolerance on accuracy at one batch size.

    Args:
        judge: Measures on text.
        accuracy: Decodes the prompts.
        ladders: Settings by recipe, the strongest first.
        batch_size: B.
        tolerance: The limit on accuracy.
        top_k: K.

    Returns:
        The setting's losses are those of the prompts' groups that the search sees.

    """
    seen: dict[int, Found] = {}

    def passes(at: int) -> bool:
        level = Tolerance(f"kl<={LEVELS[at]}", "kl", LEVELS[at])
        found = search(judge, ladders, batch_size, level, top_k)
        best = found.best
        if best is not None:
            losses = accuracy.losses(best.policy, batch_size, accuracy.split.search)
            bound = accuracy.bound(losses)
            best = dataclasses.replace(best, losses=tuple(losses), bound=bound)
        seen[at] = dataclasses.replace(found, best=best)
        return best is None or best.bound <= tolerance.limit

    found = strongest(len(LEVELS), passes)
    last = seen[len(LEVELS) - 1 if found is None else found]
    return last if found is not None else dataclasses.replace(last, best=None)
