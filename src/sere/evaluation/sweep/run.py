"""The whole sweep: every setting of every series at every batch size on every seed's text."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence

from sere.errors import DataError
from sere.evaluation.provenance import Provenance
from sere.evaluation.sweep.estimate import Estimate
from sere.evaluation.sweep.evaluator import Evaluator
from sere.evaluation.sweep.point import Point
from sere.evaluation.sweep.record import Setting, SweepRecord
from sere.evaluation.sweep.series import CONTROL, Series
from sere.routing import Policy, parse_policy

Progress = Callable[[str, int, int], None]
"""Told in words what is about to run, how many tokens' worth of work are done, and how many there are."""


def sweep(
    evaluator: Evaluator,
    series: Sequence[Series],
    batch_sizes: Sequence[int],
    *,
    built: Mapping[str, Policy] | None = None,
    progress: Progress | None = None,
) -> SweepRecord:
    """Measure what is not measured yet, and put everything together.

    Each point is in the evaluator's cache as soon as it is measured, so an interrupted sweep goes on where
    it was when it is started again.

    Args:
        evaluator: Model, texts and cache.
        series: What to sweep.
        batch_sizes: B, one after the other.
        built: Policies that have no short form, by the name under which a series lists them; it is their
            own name, too.
        progress: Told what is about to run.

    Raises:
        PolicyError, ArtifactError, DataError: As :meth:`Evaluator.measure`; whatever can be refused is
            refused before anything is measured.

    """
    started = time.monotonic()
    provenance = Provenance.now(
        evaluator.model,
        fingerprint=evaluator.record.fingerprint,
        artifact=None if evaluator.artifact is None else evaluator.artifact.hash,
        seeds={"order of the texts": evaluator.config.shuffle},
    )
    check_sizes(evaluator, batch_sizes)
    lines = [Series(CONTROL, (CONTROL,)), *series]
    built = built or {}
    forms = dict.fromkeys(form for line in lines for form in line.policies)
    policies = {form: built[form] if form in built else parse_policy(form) for form in forms}
    for policy in policies.values():
        evaluator.check(policy)
    work = {size: evaluator.config.sequences_for(size) for size in batch_sizes}
    total = sum(work.values()) * evaluator.config.seeds * len(policies)
    done, measured, settings = 0, 0, []
    for size in batch_sizes:
        points: dict[str, list[Point]] = {form: [] for form in policies}
        for seed in range(evaluator.config.seeds):
            for form, policy in policies.items():
                if progress is not None:
                    progress(f"batch {size}, seed {seed}: {form}", done, total)
                measured += evaluator.key(policy, size, seed) not in evaluator.cache
                points[form].append(evaluator.measure(built.get(form, form), size, seed))
                done += work[size]
        settings += [_setting(line.name, points[form]) for line in lines for form in line.policies]
    return SweepRecord(
        provenance=provenance,
        model=evaluator.record,
        artifact=None if evaluator.artifact is None else evaluator.artifact.hash,
        metric=evaluator.metric,
        texts_sha256=hashlib.sha256("\0".join(evaluator.texts).encode()).hexdigest(),
        config={**dataclasses.asdict(evaluator.config), "batch_sizes": list(batch_sizes)},
        settings=settings,
        points=len(policies) * len(batch_sizes) * evaluator.config.seeds,
        measured=measured,
        seconds=time.monotonic() - started,
    )


def check_sizes(evaluator: Evaluator, batch_sizes: Sequence[int]) -> None:
    """Refuse batch sizes that are none, or that a seed's share of text cannot fill.

    Raises:
        DataError: If there is one.

    """
    if not batch_sizes or min(batch_sizes) < 1 or len(set(batch_sizes)) < len(batch_sizes):
        raise DataError(f"batch sizes must be 1 or more, each once, got {list(batch_sizes)}.")
    for size in batch_sizes:
        for seed in range(evaluator.config.seeds):
            evaluator.sequences(size, seed)


def expected_seconds(evaluator: Evaluator, series: Sequence[Series], batch_sizes: Sequence[int]) -> float:
    """Time one point of each batch size and say how long those that are not measured yet will take.

    The control is what is timed; policies that do more take up to half as long again on a small model.
    """
    policies = [
        parse_policy(form) for form in dict.fromkeys([CONTROL, *(p for s in series for p in s.policies)])
    ]
    seconds = 0.0
    for size in batch_sizes:
        missing = sum(
            evaluator.key(policy, size, seed) not in evaluator.cache
            for seed in range(evaluator.config.seeds)
            for policy in policies
        )
        seconds += missing * evaluator.seconds(size) if missing else 0.0
    return seconds


def _setting(name: str, points: Sequence[Point]) -> Setting:
    first = points[0]
    return Setting(
        series=name,
        policy=first.policy,
        batch_size=first.batch_size,
        before=Estimate.of([point.before for point in points]),
        experts=Estimate.of([point.after for point in points]),
        kl=Estimate.of([point.kl for point in points]),
        top1=Estimate.of([point.top1 for point in points]),
        perplexity_change=Estimate.of([point.perplexity_change for point in points]),
    )
