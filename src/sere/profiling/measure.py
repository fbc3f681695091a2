"""Time decoding steps whose rows and distinct experts vary independently of each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import quantiles
from typing import Any

import torch
from torch import Tensor

from sere.engines.transformers.layers import survey
from sere.evaluation.decoding import LiveBatch
from sere.profiling.config import ProfileConfig
from sere.profiling.fit import Step
from sere.profiling.forced import Forced, forced

Progress = Callable[[str], None]


def measure_steps(model: Any, config: ProfileConfig, progress: Progress | None = None) -> list[Step]:
    """Time steps of every batch size at several numbers of distinct experts.

    All steps have K slots in every row; only which experts they name is forced. Steps with different
    numbers of experts take turns one by one, batch sizes round by round, so that drift hits all alike.

    Args:
        model: A Transformers causal language model in evaluation mode.
        config: Sizes.
        progress: Told what is about to run.

    Raises:
        EngineError: If the model cannot be re-routed.

    """
    times: dict[tuple[int, int], list[float]] = {}
    generator = torch.Generator().manual_seed(config.seed)
    sizes = list(config.batch_sizes)
    with forced(model) as state, torch.inference_mode():
        for turn in range(config.rounds):
            shift = turn % len(sizes)
            for rows in sizes[shift:] + sizes[:shift]:
                if progress is not None:
                    progress(f"round {turn + 1} of {config.rounds}: {rows} rows")
                _round(model, state, rows, config, generator, times)
    return [_step(rows, experts, seconds) for (rows, experts), seconds in sorted(times.items())]


def expert_bytes(model: Any) -> int:
    """Bytes of one expert's weights, summed over the MoE layers; scales of quantised weights included."""
    total = 0
    for layer in survey(model).layers:
        weights = (*layer.module.parameters(), *layer.module.buffers())
        total += sum(weight.numel() * weight.element_size() for weight in weights) // layer.num_experts
    return total


def levels(least: int, most: int, count: int) -> list[int]:
    """Choose at most ``count`` whole numbers from ``least`` to ``most``, each about the same factor apart."""
    if most <= least or count < 2:
        return [min(least, most)]
    ratio = (most / least) ** (1 / (count - 1))
    return sorted({round(least * ratio**place) for place in range(count)})


def synchronise(model: Any) -> None:
    """Wait for the device."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def _round(
    model: Any,
    state: Forced,
    rows: int,
    config: ProfileConfig,
    generator: torch.Generator,
    times: dict[tuple[int, int], list[float]],
) -> None:
    """Decode with forced experts at one batch size; the first step is not timed."""
    shapes = levels(state.least(), state.most(rows), config.levels)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    length = config.prompt_tokens + 1 + config.steps * len(shapes)
    ids = torch.randint(vocabulary, (rows, length), generator=generator).to(model.device)
    state.clear()
    live = LiveBatch(model)
    prompt = ids[:, : config.prompt_tokens]
    live.prefill(prompt, torch.ones_like(prompt))
    for place, column in enumerate(range(config.prompt_tokens, length)):
        # Up and down by turns, so that no number of experts always follows the same other one.
        order = shapes if place // len(shapes) % 2 else shapes[::-1]
        experts = order[place % len(shapes)]
        state.prepare(rows, experts, generator)
        seconds = _seconds(model, live, ids[:, column])
        if place:
            times.setdefault((rows, experts), []).append(seconds)
    state.clear()


def _seconds(model: Any, live: LiveBatch, tokens: Tensor) -> float:
    synchronise(model)
    started = time.perf_counter()
    live.step(tokens).argmax(-1)
    synchronise(model)
    return time.perf_counter() - started


def _step(rows: int, experts: int, seconds: list[float]) -> Step:
    low, middle, high = quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
    return Step(rows, experts, middle, low, high)
