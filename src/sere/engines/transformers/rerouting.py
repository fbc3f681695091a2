"""One layer under a policy: what its hooks share."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from sere.engines.transformers.counters import new_table
from sere.engines.transformers.layers import MoELayer
from sere.engines.transformers.scores import ScoreSource
from sere.errors import EngineError
from sere.kernels import FusedPolicy, fuse
from sere.routing import DECODE, Guard, LayerStatistics, Policy, RouterScores


@dataclass(eq=False)
class Rerouting:
    """One layer under a policy.

    Attributes:
        layer: The layer.
        policy: The policy.
        statistics: What the policy may know about the layer.
        table: Counters, or None if nothing is to be counted.
        source: Where the router's scores come from, or None if the policy needs none.
        fused: The policy on its kernel, or None if it runs as plain torch.
        guard: Steps that stay as routed, or None.
        guarded: Steps with decode rows that the guard left as routed, shape [], int64; None if nothing is
            counted or there is no guard.
        called: Whether the experts module has run at all.

    """

    layer: MoELayer
    policy: Policy
    statistics: LayerStatistics
    table: Tensor | None
    source: ScoreSource | None = None
    fused: FusedPolicy | None = None
    guard: Guard | None = None
    guarded: Tensor | None = None
    called: bool = False

    @classmethod
    def of(
        cls,
        layer: MoELayer,
        policy: Policy,
        statistics: LayerStatistics,
        counting: bool,
        source: ScoreSource | None = None,
        guard: Guard | None = None,
    ) -> Rerouting:
        """Put everything that the hooks need on the layer's device."""
        device = device_of(layer.module)
        table = new_table(device) if counting else None
        guarded = torch.zeros((), dtype=torch.int64, device=device) if counting and guard else None
        fused = None
        if policy.inert(layer.top_k) is None:
            fused = fuse(policy, statistics, layer.num_experts, layer.top_k, device)
        prepared = () if fused is None else fused.tensors
        for tensor in (*_tensors(statistics).values(), *prepared, table, guarded):
            if tensor is not None and device.type != "cpu":
                # Graphs captured on an accelerator may then read and write it in place.
                torch._dynamo.mark_static_address(tensor)
        return cls(layer, policy, statistics, table, source, fused, guard, guarded)

    def fused_for(self, weights: Tensor) -> FusedPolicy | None:
        """Return the policy's kernel on the device of ``weights``; None if it has none, or no gradients."""
        if self.fused is None or (weights.requires_grad and torch.is_grad_enabled()):
            return None
        if self.fused.device != weights.device:
            layer, device = self.layer, weights.device
            self.fused = fuse(self.policy, self.statistics_on(device), layer.num_experts, layer.top_k, device)
        return self.fused

    def table_on(self, device: torch.device) -> Tensor | None:
        """Return the counters on ``device``, and leave them there."""
        if self.table is not None and self.table.device != device:
            self.table = self.table.to(device)
        return self.table

    def policy_of(self, kinds: Tensor) -> Policy | None:
        """Return what re-routes a step of rows of these kinds; None if the guard keeps it as routed."""
        rows = kinds.shape[0]
        if self.guard is None or self.guard.passes(rows):
            return self.policy.at(rows)
        if self.guarded is not None:
            if self.guarded.device != kinds.device:
                self.guarded = self.guarded.to(kinds.device)
            self.guarded.add_((kinds == DECODE).any())
        return None

    def scores(self, logits: Tensor | None, rows: int) -> RouterScores:
        """Turn what the router has just computed into scores of all experts.

        Raises:
            EngineError: If the router has not run, or on other rows.

        """
        if self.source is None or logits is None or logits.shape[:-1].numel() != rows:
            seen = "not run" if logits is None else f"run on {logits.shape[:-1].numel()} rows"
            raise EngineError(
                f"{self.layer.name} runs on {rows} rows, and its router has {seen}; {self.policy.name} needs "
                "its scores of the same rows. Call the whole model, or choose a policy that works on the "
                "routed slots alone, such as sere."
            )
        return self.source.scores(logits, self.layer.num_experts)

    def statistics_on(self, device: torch.device) -> LayerStatistics:
        """Return the statistics on ``device``, and leave them there."""
        moved = {name: t.to(device) for name, t in _tensors(self.statistics).items() if t.device != device}
        if moved:
            self.statistics = replace(self.statistics, **moved)
        return self.statistics


def device_of(module: nn.Module) -> torch.device:
    """Device of the module's weights; the CPU for weights that lie elsewhere until they are used."""
    weight = next(module.parameters(), None)
    return torch.device("cpu") if weight is None or weight.is_meta else weight.device


def _tensors(statistics: LayerStatistics) -> dict[str, Tensor]:
    values = {each.name: getattr(statistics, each.name) for each in fields(statistics)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
