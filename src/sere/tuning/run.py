"""The whole tuning: search, compose, confirm."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

from sere.errors import TuningError
from sere.evaluation.provenance import Provenance
from sere.evaluation.sweep import Evaluator
from sere.evaluation.sweep.run import check_sizes
from sere.tuning.accuracy import Accuracy
from sere.tuning.by_accuracy import search_by_accuracy
from sere.tuning.confirm import confirm
from sere.tuning.judge import Judge, Say, StepTime, Trial
from sere.tuning.ladder import ladders
from sere.tuning.record import CandidateRecord, PointRecord, TuneRecord
from sere.tuning.search import Found, search
from sere.tuning.split import Split
from sere.tuning.tolerance import Tolerance
from sere.tuning.traffic import Traffic

TARGETS: Final[Mapping[str, float]] = {"careful": 0.25, "balanced": 0.5, "fast": 1.0}
"""Name of an operating point to the part of the tolerance that it may use, the most careful first."""


def tune(
    evaluator: Evaluator,
    tolerance: Tolerance | str,
    traffic: Traffic,
    *,
    recipes: Sequence[str] | None = None,
    targets: Mapping[str, float] = TARGETS,
    seed: int = 0,
    step_time: StepTime | None = None,
    accuracy: Accuracy | None = None,
    say: Say = lambda _text: None,
) -> TuneRecord:
    """Search for operating points on one half of the shares of text, and measure them on the other.

    Every point is in the evaluator's cache as soon as it is measured, so an interrupted tuning goes on where
    it was when it is started again.

    Args:
        evaluator: Model, artifact, texts and cache; its seeds are the shares.
        tolerance: What may be lost, at every batch size of the traffic.
        traffic: Batch sizes and their weights.
        recipes: Recipes to search, as for a sweep; None for all.
        targets: Name of a point to the part of the tolerance that it may use, in (0, 1], rising.
        seed: Seed of the draw of the search's half.
        step_time: Predicts the time of a step, which then is made least; None makes distinct experts least.
        accuracy: Prompts with answers, for a tolerance on accuracy; only then.
        say: Told what is about to be measured.

    Raises:
        TuningError: If the evaluator has no artifact, a target is out of range, the shares are too few, or
            a tolerance on accuracy has no prompts.
        PolicyError: If a recipe is unknown or changes nothing in this model.
        DataError: If the shares do not fill a batch size.

    """
    started = time.monotonic()
    tolerance = Tolerance.parse(tolerance) if isinstance(tolerance, str) else tolerance
    if evaluator.artifact is None:
        raise TuningError("operating points are kept in an artifact. Calibrate the model first.")
    if not targets or not all(0 < part <= 1 for part in targets.values()):
        raise TuningError(f"operating points take a part of the tolerance in (0, 1], not {dict(targets)}.")
    if tolerance.on_prompts != (accuracy is not None):
        raise TuningError(
            f"{tolerance.text} is measured on prompts with answers. Give a task file (--task)."
            if tolerance.on_prompts
            else f"{tolerance.text} is measured on text. Leave the task file out, or tolerate accuracy_loss."
        )
    split = Split.draw(evaluator.config.seeds, seed)
    provenance = Provenance.now(
        evaluator.model,
        fingerprint=evaluator.record.fingerprint,
        artifact=evaluator.artifact.hash,
        seeds={"order of the texts": evaluator.config.shuffle, "split": seed},
    )
    check_sizes(evaluator, list(traffic.shares))
    experts, top_k = max(evaluator.layers)
    lines = ladders(recipes, experts, top_k, evaluator.artifact)
    judge = Judge(evaluator, split, step_time=step_time, say=say)
    points, candidates = [], []
    for name, part in targets.items():
        limited = dataclasses.replace(tolerance, limit=tolerance.limit * part)
        found = {
            size: search(judge, lines, size, limited, top_k)
            if accuracy is None
            else search_by_accuracy(judge, accuracy, lines, size, limited, top_k)
            for size in traffic.shares
        }
        best: dict[int, Trial | None] = {size: each.best for size, each in found.items()}
        points.append(confirm(judge, name, best, limited, traffic, accuracy))
        if part == max(targets.values()):
            candidates = [each for size in found for each in _candidates(judge, size, found[size])]
    return TuneRecord(
        provenance=provenance,
        model=evaluator.record,
        artifact=evaluator.artifact.hash,
        metric=evaluator.metric,
        texts_sha256=hashlib.sha256("\0".join(evaluator.texts).encode()).hexdigest(),
        tolerance=tolerance.text,
        traffic=dict(traffic.shares),
        search=list(split.search),
        heldout=list(split.heldout),
        prompts=None if accuracy is None else accuracy.prompts,
        config={**dataclasses.asdict(evaluator.config), "seed": seed, "targets": dict(targets)},
        points=points,
        recommended=_recommended(points),
        candidates=candidates,
        trials=len(judge.seen),
        seconds=time.monotonic() - started,
    )


def _recommended(points: Sequence[PointRecord]) -> str | None:
    """Name the confirmed point that saves most; of equal ones the most careful."""
    confirmed = [point for point in points if point.confirmed]

    def gain(point: PointRecord) -> float:
        if point.speedup is not None:
            return point.speedup
        return point.experts_saved.mean if point.experts_saved is not None else 0.0

    return max(confirmed, key=gain).name if confirmed else None


def _candidates(judge: Judge, batch_size: int, found: Found) -> list[CandidateRecord]:
    finals = found.finals
    return [
        CandidateRecord(
            recipe=each.name,
            batch_size=batch_size,
            policy=each.policy,
            cost=None if each.policy is None else each.cost,
            final=finals[each.name].policy if each.name in finals else None,
            final_cost=judge.cost(finals[each.name]) if each.name in finals else None,
            refused=each.refused,
        )
        for each in found.scouted
    ]
