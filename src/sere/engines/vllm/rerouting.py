"""One served layer under a policy."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sere.engines.vllm.counting import add_step, unchanged
from sere.engines.vllm.rows import RowKinds
from sere.engines.vllm.scores import RouterScorer
from sere.kernels import FusedPolicy, fuse
from sere.routing import PREFILL, Guard, LayerStatistics, Policy, RouterScores, Routes, RoutingBatch

_IDS = (torch.int32, torch.int64)


@dataclass(eq=False)
class Rerouting:
    """What one layer's custom operation needs; all tensors keep their address for the engine's life.

    SERE and what selects and then backfills run on their fused kernels, any other policy as plain torch.

    Attributes:
        name: The layer's name in vLLM.
        index: Number of its decoder layer.
        num_experts: E, logical routed experts.
        top_k: K.
        rows: Row kinds of the step.
        policy: The policy; exchanged by :meth:`use`.
        statistics: What the policy may know, on the device.
        table: Counters, or None if nothing is counted.
        switch: On a device that replays graphs, a bool tensor without dimensions that turns the policy's
            result on or off; None where Python runs in every step.
        scorer: Turns the router's logits into scores of all experts; None if that cannot be done.
        guard: Steps that stay as routed, by their number of rows, or None.
        guarded: How many there were, shape [], int64, on the device; None without a guard or a count.
        enabled: Whether the policy is on, where Python runs in every step.
        calls: How often :meth:`route` ran: it runs while graphs are captured, not while they are replayed.
        fused: The policy on its kernel, or None if it has none.
        in_graph: Whether captured graphs read the kernel's table, so that it can be exchanged under them.

    """

    name: str
    index: int
    num_experts: int
    top_k: int
    rows: RowKinds
    policy: Policy
    statistics: LayerStatistics
    table: Tensor | None
    switch: Tensor | None = None
    scorer: RouterScorer | None = None
    guard: Guard | None = None
    guarded: Tensor | None = None
    enabled: bool = True
    calls: int = 0
    fused: FusedPolicy | None = field(init=False, default=None)
    in_graph: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.use(self.policy, self.statistics)

    def use(self, policy: Policy, statistics: LayerStatistics) -> None:
        """Serve ``policy`` from the next step on; captured graphs go on with what they hold."""
        self.policy, self.statistics = policy, statistics
        self.fused = None if policy.inert(self.top_k) else self.fuse(policy, statistics)

    def fuse(self, policy: Policy, statistics: LayerStatistics) -> FusedPolicy | None:
        """Make ``policy`` ready for this layer's kernel; None if it has none."""
        return fuse(policy, statistics, self.num_experts, self.top_k, self.rows.kinds.device)

    def turn(self, on: bool) -> None:
        """Turn the policy on or off, in captured graphs too."""
        if self.switch is None:
            self.enabled = on
            return
        self.switch.fill_(on)
        if self.fused is not None:
            self.fused.turn(on)

    def route(
        self, ids: Tensor, weights: Tensor, hidden: Tensor | None = None, logits: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Rewrite one step's routing into fresh tensors.

        Args:
            ids: Logical expert ids, shape [rows, slots], any integer dtype.
            weights: Routing weights of the same shape.
            hidden: The layer's input, shape [rows, H], for policies that need it.
            logits: What the router chose by, shape [rows, C] with C >= E, for policies that need scores.

        Returns:
            Ids and weights of the same shapes and dtypes, contiguous, sharing no memory with the inputs.

        """
        self.calls += 1
        kinds = self.rows.of(ids.shape[0])
        if kinds is None:
            # Not this step's rows, so nothing is known about them: all stay as routed.
            kinds = torch.full(ids.shape[:1], PREFILL, dtype=torch.int32, device=ids.device)
        wide = ids if ids.dtype in _IDS else ids.to(torch.int64)
        if self._guards(ids.shape[0]) or self._keeps_all(ids.shape[0]):
            if self.table is not None:
                add_step(self.table, RoutingBatch(wide, weights, self.num_experts, kinds), None)
            return _copy(ids), _copy(weights)
        needs = self.policy.needs
        scores = self._scores(logits) if "scores" in needs else None
        if self.fused is not None and (self.switch is None or self.fused.in_place(wide, weights)):
            self.in_graph = self.switch is not None
            new_ids, new_weights = self.fused.route(wide, weights, kinds, self.table, scores)
            return new_ids.to(ids.dtype), new_weights
        batch = RoutingBatch(
            wide,
            weights,
            self.num_experts,
            kinds,
            scores=scores,
            hidden=hidden if "hidden" in needs else None,
        )
        routes = self.policy.route(batch, self.statistics, redirect_padding=True)
        if self.switch is not None:
            routes = _where(self.switch, routes, unchanged(batch))
        if self.table is not None:
            add_step(self.table, batch, routes)
        return _fresh(routes.ids.to(ids.dtype), ids), _fresh(routes.weights, weights)

    def _scores(self, logits: Tensor | None) -> RouterScores | None:
        if self.scorer is None or logits is None:
            return None
        return self.scorer(logits, self.num_experts)

    @property
    def changes(self) -> bool:
        """Whether the policy can change anything in this layer."""
        return self.enabled and self.policy.inert(self.top_k) is None

    def _guards(self, rows: int) -> bool:
        """Whether the guard keeps the step as routed; a graph has one number of rows, so one answer."""
        if self.guard is None or self.guard.passes(rows):
            return False
        if self.guarded is not None:
            self.guarded.add_(1)
        return True

    def _keeps_all(self, rows: int) -> bool:
        """Whether nothing can change in this step; never of a step whose graph may serve another one."""
        if self.switch is not None:
            return False
        prompts_only = self.policy.phase == "decode" and self.rows.decoding == 0
        return not self.changes or (prompts_only and rows == self.rows.tokens)


def _where(on: Tensor, routes: Routes, kept: Routes) -> Routes:
    """Choose on the device; no Python runs when a graph is replayed."""
    return Routes(
        torch.where(on, routes.ids, kept.ids),
        torch.where(on, routes.weights, kept.weights),
        routes.empty & on,
        torch.where(on, routes.active, kept.active),
    )


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _fresh(new: Tensor, old: Tensor) -> Tensor:
    return _copy(new) if new.data_ptr() == old.data_ptr() else new.contiguous()
