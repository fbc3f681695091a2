"""What an operating point costs on texts that the search never touched."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from sere.evaluation.sweep import Point
from sere.evaluation.sweep.estimate import Estimate
from sere.tuning.accuracy import Accuracy
from sere.tuning.compose import UNMODIFIED, compose
from sere.tuning.judge import Judge, Trial
from sere.tuning.record import PointRecord, SizeRecord
from sere.tuning.tolerance import Tolerance
from sere.tuning.traffic import Traffic


def confirm(
    judge: Judge,
    name: str,
    best: Mapping[int, Trial | None],
    tolerance: Tolerance,
    traffic: Traffic,
    accuracy: Accuracy | None = None,
) -> PointRecord:
    """Measure the very policy that is to be written, at every batch size, on the held-out shares and prompts.

    Args:
        judge: Of the search; its evaluator measures, its price foretells time.
        name: Name of the point.
        best: What the search chose for each batch size of the traffic; None leaves it as routed.
        tolerance: Limit that it was searched for.
        traffic: Weights of the batch sizes.
        accuracy: Decodes the held-out prompts, for a tolerance on them.

    """
    policy = compose({size: None if trial is None else trial.policy for size, trial in best.items()})
    if policy is None:
        return PointRecord(name=name, limit=tolerance.limit, policy=None)
    evaluator, heldout = judge.evaluator, judge.split.heldout
    measured = {
        size: [evaluator.measure(policy, size, share) for share in heldout] for size in traffic.shares
    }
    losses = {
        size: list(map(tolerance.loss, points))
        if accuracy is None
        else accuracy.losses(policy, size, accuracy.split.heldout)
        for size, points in measured.items()
    }
    sizes = [
        _size(judge, size, weight, best[size], measured[size], losses[size], tolerance.limit)
        for size, weight in traffic.shares.items()
    ]
    saved = []
    for at in range(len(heldout)):
        before = sum(weight * measured[size][at].before for size, weight in traffic.shares.items())
        after = sum(weight * measured[size][at].after for size, weight in traffic.shares.items())
        saved.append(1 - after / before)
    return PointRecord(
        name=name,
        limit=tolerance.limit,
        policy=policy,
        sizes=sizes,
        experts_saved=Estimate.of(saved),
        speedup=_speedup(judge, sizes),
        confirmed=all(size.met for size in sizes),
    )


def _size(
    judge: Judge,
    size: int,
    weight: float,
    best: Trial | None,
    points: list[Point],
    losses: list[float],
    limit: float,
) -> SizeRecord:
    record = SizeRecord(
        batch_size=size,
        weight=weight,
        policy=None if best is None else best.policy,
        before=Estimate.of([point.before for point in points]),
        after=Estimate.of([point.after for point in points]),
        loss=Estimate.of(losses),
        kl=Estimate.of([point.kl for point in points]),
        top1=Estimate.of([point.top1 for point in points]),
        perplexity_change=Estimate.of([point.perplexity_change for point in points]),
        search_loss=0.0 if best is None else best.loss,
        bound=None if best is None else best.bound,
        met=fmean(losses) <= limit,
    )
    if judge.timed:
        plain, ours = _times(judge, record)
        record.speedup = plain / ours
    return record


def _times(judge: Judge, size: SizeRecord) -> tuple[float, float]:
    """Predicted time of the unmodified model's step, and of this point's."""
    plain = judge.price(UNMODIFIED, size.batch_size, size.before.mean)
    if size.policy is None:
        return plain, plain
    return plain, judge.price(size.policy, size.batch_size, size.after.mean)


def _speedup(judge: Judge, sizes: list[SizeRecord]) -> float | None:
    if not judge.timed:
        return None
    times = [(size.weight, *_times(judge, size)) for size in sizes]
    return sum(weight * plain for weight, plain, _ in times) / sum(weight * ours for weight, _, ours in times)
