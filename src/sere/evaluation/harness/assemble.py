"""From cells to the record's entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from sere.errors import RecordError
from sere.evaluation.compare import UNMODIFIED
from sere.evaluation.harness.cell import Cell
from sere.evaluation.harness.paired import Scores, compare_pairs
from sere.evaluation.harness.record import Average, TaskResult
from sere.evaluation.intervals import bootstrap, wilson
from sere.evaluation.record import Interval


def result_of(cell: Cell, part: str, plain: Cell | None, seed: int) -> TaskResult:
    """Put a cell beside ``plain``, the unmodified model's of the same task and batch size.

    Raises:
        RecordError: If the two had other prompts.

    """
    paired = same = None
    if plain is not None and cell.policy != UNMODIFIED:
        pair = _pair(plain, cell)
        paired = None if pair is None else compare_pairs([pair], seed)
        same = sum(a == b for a, b in zip(plain.answers, cell.answers, strict=True)) / len(cell.answers)
    return TaskResult(
        task=cell.task,
        part=part,
        policy=cell.policy,
        batch_size=cell.batch_size,
        run=cell.run,
        output_type=cell.output_type,
        examples=len(cell.answers),
        metric=cell.main,
        value=cell.metrics[cell.main],
        interval=_interval(cell, seed),
        paired=paired,
        same=same,
        metrics=cell.metrics,
        sequences=cell.sequences,
        steps=cell.steps,
        mean_live=cell.mean_live,
        cut=cell.cut,
        experts=cell.experts,
        seconds=cell.seconds,
    )


def averages(cells: Sequence[Cell], parts: Mapping[str, str], seed: int) -> list[Average]:
    """Average each policy over what the user named; tasks of one name are one pot of examples."""
    found = dict(_by_variant(cells))
    return [
        _average(policy, size, own, found.get((UNMODIFIED, size), []), parts, seed)
        for (policy, size), own in found.items()
        if all(cell.main_scores is not None for cell in own)
    ]


def _by_variant(cells: Sequence[Cell]) -> Iterator[tuple[tuple[str, int], list[Cell]]]:
    found: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.policy, cell.batch_size), []).append(cell)
    yield from found.items()


def _average(
    policy: str, size: int, own: Sequence[Cell], plain: Sequence[Cell], parts: Mapping[str, str], seed: int
) -> Average:
    pots = _pots(own, parts)
    paired = None
    if policy != UNMODIFIED and plain:
        for mine, theirs in zip(own, plain, strict=True):
            _pair(theirs, mine)
        before = _pots(plain, parts)
        paired = compare_pairs([(before[name], scores) for name, scores in pots.items()], seed)
    means = {name: sum(scores) / len(scores) for name, scores in pots.items()}
    counted = [(cell.experts, cell.steps) for cell in own if cell.experts is not None]
    steps = sum(each for _, each in counted)
    return Average(
        policy=policy,
        batch_size=size,
        parts=means,
        value=sum(means.values()) / len(means),
        paired=paired,
        experts=sum(e.after * n for e, n in counted) / steps if steps else None,
        before=sum(e.before * n for e, n in counted) / steps if steps else None,
    )


def _pots(cells: Sequence[Cell], parts: Mapping[str, str]) -> dict[str, list[float]]:
    pots: dict[str, list[float]] = {}
    for cell in cells:
        pots.setdefault(parts[cell.task], []).extend(cell.main_scores or [])
    return pots


def _pair(plain: Cell, cell: Cell) -> Scores | None:
    if plain.prompts != cell.prompts:
        raise RecordError(
            f"{cell.task} had other prompts under {cell.policy} than unmodified: its data changed meanwhile. "
            "Choose another --out and measure both again."
        )
    before, after = plain.main_scores, cell.main_scores
    return None if before is None or after is None else (before, after)


def _interval(cell: Cell, seed: int) -> Interval:
    scores = cell.main_scores
    if scores is None:
        value = cell.metrics[cell.main]
        return value, value
    if all(score in (0, 1) for score in scores):
        return wilson(round(sum(scores)), len(scores))
    return bootstrap(torch.tensor(scores), seed)
