"""Forced routing: as many distinct experts as asked for, whatever the router says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from sere.engines.transformers.layers import MoELayer, parameter_names, survey
from sere.engines.transformers.rerouting import device_of

SKEW: Final = 1.0
"""Standard deviation of how much routers are taken to like some experts more, in logits."""


@dataclass(eq=False)
class Forced:
    """Replaces the experts that the routers chose; weights stay.

    Attributes:
        layers: The layers.
        ids: Experts of the next step by layer name, shape [T, K], int64; empty forces nothing.

    """

    layers: tuple[MoELayer, ...]
    ids: dict[str, Tensor] = field(default_factory=dict)

    def most(self, rows: int) -> int:
        """Most distinct experts that every layer can be made to read in a step of ``rows`` rows."""
        return min(min(layer.num_experts, rows * layer.top_k) for layer in self.layers)

    def least(self) -> int:
        """Fewest distinct experts that every layer reads without naming one twice in a row."""
        return max(layer.top_k for layer in self.layers)

    def prepare(self, rows: int, experts: int, generator: torch.Generator) -> None:
        """Draw ``experts`` distinct experts in every layer, and the slots that name each.

        Some are named by many rows and some by one, as routers do it: a product with few rows has its
        own speed, and evenly dealt slots would meet one such speed in all experts at once.

        Args:
            rows: T, rows of the step.
            experts: Distinct experts, at most :meth:`most`.
            generator: Source of the draw, on the CPU.

        """
        self.ids = {layer.name: _drawn(layer, rows, experts, generator) for layer in self.layers}

    def clear(self) -> None:
        """Let the routers decide again."""
        self.ids = {}


def dealt(slots: int, rows: int, experts: int, generator: torch.Generator) -> Tensor:
    """Deal the slots of all rows to ``experts`` experts, each at least once, none twice in a row if possible.

    Args:
        slots: K, slots of a row.
        rows: T.
        experts: Distinct experts, at most ``rows * slots``.
        generator: Source of the draw.

    Returns:
        Numbers from 0 to ``experts - 1``, shape [T, K], int64.

    """
    if experts <= slots:
        return torch.arange(rows * slots).view(rows, slots) % experts
    liking = SKEW * torch.randn(experts, generator=generator)
    noise = (
        -torch.rand(rows, experts, generator=generator).log().neg().log()
    )  # Gumbel: K draws without return
    ids = (liking + noise).topk(slots, dim=1).indices
    counts = ids.flatten().bincount(minlength=experts)
    for missing in (counts == 0).nonzero().flatten().tolist():
        most = counts.argmax()
        row, slot = (ids == most).nonzero()[0].tolist()
        ids[row, slot] = missing
        counts[most] -= 1
        counts[missing] += 1
    return ids


def _drawn(layer: MoELayer, rows: int, experts: int, generator: torch.Generator) -> Tensor:
    chosen = torch.randperm(layer.num_experts, generator=generator)[:experts]
    return chosen[dealt(layer.top_k, rows, experts, generator)].to(device_of(layer.module))


@contextmanager
def forced(model: Any) -> Iterator[Forced]:
    """Put the hooks on every MoE layer of ``model``; they come off whatever happens.

    Raises:
        EngineError: If the model cannot be re-routed.

    """
    state = Forced(survey(model).layers)
    hooks = []
    try:
        for layer in state.layers:
            hook = _hook(state, layer)
            hooks.append(layer.module.register_forward_pre_hook(hook, with_kwargs=True))
        yield state
    finally:
        for handle in hooks:
            handle.remove()


def _hook(state: Forced, layer: MoELayer) -> Any:
    hidden, ids_name = parameter_names(layer.module)[:2]

    def hook(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        forced_ids = state.ids.get(layer.name)
        if forced_ids is None:
            return None
        routed: Tensor = {**dict(zip((hidden, ids_name), args, strict=False)), **kwargs}[ids_name]
        new = forced_ids.to(routed.dtype).view_as(routed)
        if ids_name in kwargs:
            return args, {**kwargs, ids_name: new}
        return (args[0], new, *args[2:]), kwargs

    return hook
