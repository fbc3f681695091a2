"""From measurements to the entries of a record."""

from __future__ import annotations

from sere.evaluation.config import CompareConfig
from sere.evaluation.exact_match import Solved
from sere.evaluation.fidelity import Fidelity
from sere.evaluation.intervals import bootstrap, wilson
from sere.evaluation.record import ExpertsRecord, FidelityRecord, LayerExperts, SpeedRecord, TasksRecord
from sere.evaluation.speed import Speed
from sere.evaluation.stepwise import ExpertCount


def experts_record(count: ExpertCount, width: int) -> ExpertsRecord:
    """Summarise counters; ``width`` is E."""
    share = count.rerouted / count.slots if count.slots else 0.0
    layers = [
        LayerExperts(name=name, before=layer.mean_before, after=layer.mean_after)
        for name, layer in count.layers.items()
    ]
    return ExpertsRecord(
        before=count.mean_before, after=count.mean_after, of=width, rerouted=share, layers=layers
    )


def fidelity_record(near: Fidelity, config: CompareConfig) -> FidelityRecord:
    """Summarise fidelity, with an interval over sequences."""
    sequences = len(near.divergence)
    return FidelityRecord(
        sequences=sequences,
        tokens=sequences * (config.sequence_length - 1 - config.prompt_tokens),
        kl=float(near.divergence.mean()),
        kl_interval=bootstrap(near.divergence, config.seed),
        top1_agreement=float(near.agreement.mean()),
        perplexity=near.perplexity,
        reference_perplexity=near.reference_perplexity,
        perplexity_change=near.perplexity / near.reference_perplexity - 1,
    )


def tasks_record(solved: Solved) -> TasksRecord:
    """Summarise exact match, with an interval over examples."""
    return TasksRecord(
        examples=len(solved.right),
        exact_match=solved.share(),
        interval=wilson(sum(solved.right), len(solved.right)),
        by_task=solved.by_task(),
        mean_live=solved.mean_live,
    )


def speed_record(speed: Speed, rounds: int) -> SpeedRecord:
    """Copy a speed with how it was measured."""
    return SpeedRecord(
        tokens_per_second=speed.tokens_per_second,
        ratio=speed.ratio,
        ratio_low=speed.ratio_low,
        ratio_high=speed.ratio_high,
        rounds=rounds,
    )
