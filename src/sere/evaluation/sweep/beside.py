"""Beside the sweep, for a few settings of each series: other company, and exact match."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from sere.demo.tasks import Example
from sere.errors import DataError
from sere.evaluation.company import company, pool_size
from sere.evaluation.exact_match import Solved, solve
from sere.evaluation.intervals import wilson
from sere.evaluation.sweep.cache import Cache
from sere.evaluation.sweep.evaluator import Evaluator
from sere.evaluation.sweep.identity import key_of, tokens_hash
from sere.evaluation.sweep.record import Company, Setting, Solution, SweepRecord
from sere.routing import parse_policy

UNMODIFIED = "unmodified"
HALF = 0.5
THREE = (0.35, 0.5, 0.7)
"""Shares of the unmodified model's experts near which exact match is measured."""

Say = Callable[[str], None]


class _Answers(Solution):
    answers: list[str]


def near(record: SweepRecord, batch_size: int, levels: Sequence[float]) -> list[Setting]:
    """Of every series the settings that read the share of experts nearest to each level, each once."""
    wanted = [level * record.before(batch_size).mean for level in levels]
    chosen = []
    for name in record.series:
        own = list(record.at(batch_size, name))
        picked = [min(own, key=lambda each: abs(each.experts.mean - goal)) for goal in wanted]
        chosen += list({each.policy: each for each in picked}.values())
    return chosen


def companies(
    evaluator: Evaluator,
    record: SweepRecord,
    batch_sizes: Sequence[int],
    cache: str | Path | None = None,
    say: Say = lambda _text: None,
) -> list[Company]:
    """Measure what other neighbours do, for the unmodified model and for every series at half its experts.

    Batch sizes of which the texts do not give two batches are left out, and so is batch 1.
    """
    kept = Cache(Company, cache)
    pool = torch.cat(evaluator.shares)
    found = []
    for size in batch_sizes:
        count = next((n for n in (pool_size(size), 2 * size) if n <= len(pool)), None)
        if size == 1 or count is None:
            continue
        ids = pool[:count].to(evaluator.model.device)
        pairs = [(UNMODIFIED, UNMODIFIED), *((s.series, s.policy) for s in near(record, size, [HALF]))]
        for series, form in pairs:
            policy = None if form == UNMODIFIED else parse_policy(form)
            key = key_of(kind="company", **evaluator.depends(policy, size, tokens_hash(ids)))
            result = kept.get(key)
            if result is None:
                say(f"batch {size}: {form} in other company")
                prompt = evaluator.config.prompt_tokens
                seen = company(evaluator.model, ids, size, prompt, evaluator.rerouting(policy))
                result = Company(series=series, policy=form, batch_size=size, **seen.model_dump())
                kept.put(key, result)
            found.append(result.model_copy(update={"series": series}))
    return found


def solutions(
    evaluator: Evaluator,
    record: SweepRecord,
    examples: Sequence[Example],
    batch_size: int,
    cache: str | Path | None = None,
    say: Say = lambda _text: None,
) -> list[Solution]:
    """Decode all prompts for real under a few settings of every series, and without any.

    Raises:
        DataError: If there are no examples, or the sweep has not this batch size.

    """
    if batch_size not in record.batch_sizes:
        raise DataError(f"exact match is measured at a batch size of the sweep, not at {batch_size}.")
    kept = Cache(_Answers, cache)
    work = json.dumps([dataclasses.asdict(example) for example in examples])
    pairs = [(UNMODIFIED, UNMODIFIED), *((s.series, s.policy) for s in near(record, batch_size, THREE))]
    found: list[_Answers] = []
    for series, form in pairs:
        policy = None if form == UNMODIFIED else parse_policy(form)
        key = key_of(kind="solution", **evaluator.depends(policy, batch_size, work))
        result = kept.get(key)
        if result is None:
            say(f"batch {batch_size}: exact match under {form}")
            with evaluator.rerouting(policy).on(evaluator.model, counting=False):
                solved = solve(evaluator.model, evaluator.tokenizer, examples, batch_size)
            first = found[0].answers if found else list(solved.answers)
            result = _answers(series, form, batch_size, solved, first)
            kept.put(key, result)
        found.append(result.model_copy(update={"series": series}))
    return [Solution(**each.model_dump(exclude={"answers"})) for each in found]


def _answers(series: str, form: str, batch_size: int, solved: Solved, first: Sequence[str]) -> _Answers:
    right, count = sum(solved.right), len(solved.right)
    return _Answers(
        series=series,
        policy=form,
        batch_size=batch_size,
        examples=count,
        exact_match=right / count,
        interval=wilson(right, count),
        same=sum(mine == its for mine, its in zip(solved.answers, first, strict=True)) / count,
        answers=list(solved.answers),
    )
