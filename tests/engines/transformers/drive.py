"""Run small models step by step, make random artifacts, and watch what reaches the experts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sere.artifact import Artifact, CalibrationRecord, LayerRecord
from sere.engines.transformers import describe, find_layers
from tests.engines.transformers.small import VOCABULARY


def random_artifact(model: nn.Module, seed: int = 0) -> Artifact:
    """An artifact with a random symmetric similarity for every layer."""
    generator = torch.Generator().manual_seed(seed)
    layers = tuple(
        LayerRecord(name=each.name, index=each.index, num_experts=each.num_experts, top_k=each.top_k)
        for each in find_layers(model)
    )
    statistics = {}
    for layer in layers:
        half = torch.rand(layer.num_experts, layer.num_experts, generator=generator)
        statistics[layer.name] = {"frobenius": (half + half.T) / 2}
    record = CalibrationRecord(data="random", sere_version="0")
    return Artifact.build(describe(model), layers, statistics, ("frobenius",), record)


def random_ids(rows: int, tokens: int, seed: int = 3) -> Tensor:
    """Token ids other than the pad and end token, shape [rows, tokens]."""
    return torch.randint(2, VOCABULARY, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def cached(output: Any) -> Any:
    """The cache in a model's output."""
    return output.cache if "cache" in output else output.past_key_values


def scores(output: Any) -> Tensor:
    """Logits, or hidden states of a decoder without a head."""
    return output.logits if "logits" in output else output.last_hidden_state


@torch.no_grad()
def teacher_forced(model: nn.Module, ids: Tensor, prompt: int) -> list[Tensor]:
    """Feed a prompt and then one token a step; the scores of every step."""
    output = model(input_ids=ids[:, :prompt], use_cache=True)
    results = [scores(output)]
    for t in range(prompt, ids.shape[1]):
        output = model(input_ids=ids[:, t : t + 1], cache=cached(output), use_cache=True)
        results.append(scores(output))
    return results


@dataclass
class Seen:
    """Routing that passed one place, a list entry a call: layer name, ids and weights."""

    calls: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)


@contextmanager
def watching(model: nn.Module) -> Iterator[Seen]:
    """Record the routing at the experts modules; hooks see what earlier hooks made of it."""
    seen = Seen()
    hooks = [
        each.module.register_forward_pre_hook(_recorder(seen, each.name), with_kwargs=True)
        for each in find_layers(model)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _recorder(seen: Seen, name: str) -> Any:
    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids, weights = [*args[1:], *kwargs.values()][:2]
        seen.calls.append((name, ids.clone(), weights.clone()))

    return record
