"""Accuracy on prompts with one right answer, decoded for real, in groups of which half are held out."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

from sere.demo.tasks import Example
from sere.errors import TuningError
from sere.evaluation.exact_match import solve
from sere.evaluation.record import Part
from sere.evaluation.sweep import Evaluator
from sere.evaluation.sweep.cache import Cache
from sere.evaluation.sweep.identity import key_of
from sere.routing import parse_policy
from sere.tuning.compose import UNMODIFIED
from sere.tuning.split import LEAST, Split

GROUPS = 8
"""Groups of prompts on each side; what a setting loses on one is independent of the others."""
SMALLEST = 20
"""Prompts of a group, at least."""


class Right(Part):
    """Which prompts were answered rightly, in order."""

    right: list[bool]


class Accuracy:
    """Loss of accuracy against the unmodified model, prompt by prompt.

    Args:
        evaluator: Model, tokenizer and artifact.
        examples: Prompts with their answers; dealt into groups, half of them held out.
        seed: Seed of the deal.
        cache: File of what was decoded; None keeps it in memory.

    Raises:
        TuningError: If there are too few prompts for two groups of :data:`SMALLEST` on each side.

    """

    def __init__(
        self, evaluator: Evaluator, examples: Sequence[Example], seed: int, cache: str | Path | None = None
    ) -> None:
        groups = min(2 * GROUPS, len(examples) // SMALLEST // 2 * 2)
        if groups < 2 * LEAST:
            raise TuningError(
                f"{len(examples)} prompts are too few to tell a loss of accuracy. Give at least "
                f"{2 * LEAST * SMALLEST}."
            )
        order = list(examples)
        random.Random(seed).shuffle(order)
        self._evaluator = evaluator
        self.prompts = len(order)
        self._groups = [order[at::groups] for at in range(groups)]
        self._cache = Cache(Right, cache)
        self.split = Split(tuple(range(groups // 2)), tuple(range(groups // 2, groups)))

    def losses(self, policy: str, batch_size: int, groups: Sequence[int]) -> list[float]:
        """Share of right answers lost on each group; negative where the policy answers more.

        Args:
            policy: Short form.
            batch_size: B, live sequences.
            groups: Which groups, all decoded together.

        """
        plain = self._right(UNMODIFIED, batch_size, groups)
        ours = self._right(policy, batch_size, groups)
        found, at = [], 0
        for group in groups:
            count = len(self._groups[group])
            found.append((sum(plain[at : at + count]) - sum(ours[at : at + count])) / count)
            at += count
        return found

    def bound(self, losses: Sequence[float]) -> float:
        """Upper bound of the held-out loss, at 95%; see :meth:`sere.tuning.split.Split.bound`.

        Not below ``-ln(0.05) / n`` for n prompts: seeing no loss in them allows for that much.
        """
        searched = sum(len(self._groups[group]) for group in self.split.search)
        return max(self.split.bound(losses), -math.log(0.05) / searched)

    def _right(self, policy: str, batch_size: int, groups: Sequence[int]) -> list[bool]:
        examples = [example for group in groups for example in self._groups[group]]
        parsed = None if policy == UNMODIFIED else parse_policy(policy)
        work = json.dumps([dataclasses.asdict(example) for example in examples])
        key = key_of(kind="right", **self._evaluator.depends(parsed, batch_size, work))
        found = self._cache.get(key)
        if found is None:
            model = self._evaluator.model
            with self._evaluator.rerouting(parsed).on(model, counting=False):
                solved = solve(model, self._evaluator.tokenizer, examples, batch_size)
            found = Right(right=list(solved.right))
            self._cache.put(key, found)
        return found.right
