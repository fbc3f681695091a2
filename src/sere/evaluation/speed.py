"""Decode speed of several policies in one run, taken in turns so that drift hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from sere.evaluation.decoding import LiveBatch
from sere.evaluation.stepwise import ExpertCount, Rerouting


@dataclass(frozen=True)
class Speed:
    """Decode speed of one policy.

    Attributes:
        tokens_per_second: Median over the rounds, all sequences of the batch together.
        ratio: Median over the rounds of the speed relative to the baseline's in the same round.
        ratio_low: Least of these ratios.
        ratio_high: Greatest of them.
        experts: Distinct experts of the same steps, counted outside of the clock; empty for the
            unmodified model.

    """

    tokens_per_second: float
    ratio: float
    ratio_low: float
    ratio_high: float
    experts: ExpertCount


def measure(
    model: Any,
    ids: Tensor,
    variants: Mapping[str, Rerouting],
    *,
    prompt: int,
    rounds: int,
    warmup: int = 2,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Speed]:
    """Time decoding of a known text: in every round each variant decodes all of it, in turns.

    The order of the variants turns by one from round to round. Prefill and the first ``warmup``
    steps are not timed. The text is given, so all variants do the same steps on the same tokens;
    choosing the next token is part of the time, its outcome is not used.

    Args:
        model: A Transformers causal language model in evaluation mode.
        ids: Text, shape [B, L], int64, without padding; ``L - prompt - warmup`` steps are timed.
        variants: Name to what to re-route with; the first is the baseline of the ratios.
        prompt: Tokens of prefill.
        rounds: Rounds; the spread is that of the rounds.
        warmup: Steps before the clock starts.
        progress: Told what is about to run.

    """
    names = list(variants)
    experts = {name: count_experts(model, ids, variants[name], prompt) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            if progress is not None:
                progress(f"round {turn + 1} of {rounds}: {name}")
            seconds[name].append(decode_seconds(model, ids, variants[name], prompt, warmup))
    baseline = seconds[names[0]]
    timed = ids.shape[0] * (ids.shape[1] - prompt - warmup)
    results = {}
    for name in names:
        ratios = [base / own for base, own in zip(baseline, seconds[name], strict=True)]
        rate = timed / median(seconds[name])
        results[name] = Speed(rate, median(ratios), min(ratios), max(ratios), experts[name])
    return results


def decode_seconds(model: Any, ids: Tensor, rerouting: Rerouting, prompt: int, warmup: int) -> float:
    """Seconds of decoding the known text ``ids`` after ``prompt`` and ``warmup`` tokens, uncounted."""
    live, start = LiveBatch(model), 0.0
    with torch.inference_mode(), rerouting.on(model, counting=False):
        live.prefill(ids[:, :prompt], torch.ones_like(ids[:, :prompt]))
        for t in range(prompt, ids.shape[1]):
            if t == prompt + warmup:
                _wait(model)
                start = time.perf_counter()
            live.step(ids[:, t]).argmax(-1)
        _wait(model)
        return time.perf_counter() - start


def count_experts(model: Any, ids: Tensor, rerouting: Rerouting, prompt: int) -> ExpertCount:
    """Count what :func:`decode_seconds` reads, outside of the clock; this also warms the machine up."""
    live, experts = LiveBatch(model), ExpertCount()
    with torch.inference_mode(), rerouting.on(model) as handle:
        live.prefill(ids[:, :prompt], torch.ones_like(ids[:, :prompt]))
        for t in range(prompt, ids.shape[1]):
            live.step(ids[:, t])
        if handle is not None:
            experts.add_all(handle.counters().decode)
    return experts


def _wait(model: Any) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
