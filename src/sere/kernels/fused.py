"""A policy and a layer's statistics, made ready for the fused kernels: what an engine holds for a layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sere.kernels import gpu
from sere.kernels.definition import add_to
from sere.kernels.dispatch import backend_name
from sere.kernels.op import reroute, reroute_into
from sere.kernels.table import LayerTable, Options, obstacle
from sere.routing import LayerStatistics, Policy, RouterScores


@dataclass(eq=False)
class Fused:
    """One layer under a policy of the SERE triple.

    Attributes:
        table: The layer's table.
        options: The parameters.

    """

    table: LayerTable
    options: Options

    def __post_init__(self) -> None:
        # Set apart now: captured graphs read the table's own order at its address.
        self._order = self.table.order.clone()

    @classmethod
    def of(cls, policy: Policy, statistics: LayerStatistics, redirect_padding: bool = True) -> Fused | None:
        """Prepare, or return None if the policy is another triple and runs as :meth:`Policy.route`."""
        if obstacle(policy) is not None:
            return None
        options = Options.of(policy, redirect_padding)
        return cls(LayerTable.prepare(statistics, options.threshold), options)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.table.order.device

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What captured graphs read in place."""
        return self.table.similarity, self.table.order

    def route(
        self,
        ids: Tensor,
        weights: Tensor,
        kinds: Tensor | None,
        counts: Tensor | None,
        scores: RouterScores | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Re-route one step into fresh tensors.

        Args:
            ids: Experts, shape [T, K], int32 or int64.
            weights: Weights, shape [T, K], float32, bfloat16 or float16.
            kinds: Row kinds, shape [T], or None for decode rows only.
            counts: Counters by phase, shape [3, len(FIELDS)], int64, added to; None counts nothing.
            scores: Not looked at.

        Returns:
            Ids and weights of the same shapes and dtypes.

        """
        if counts is None or not self.in_place(ids, weights):
            new_ids, new_weights, step = reroute(ids, weights, kinds, self.table, self.options)
            if counts is not None:
                add_to(counts, step)
            return new_ids, new_weights
        ids, weights = ids.contiguous(), weights.contiguous()
        new_ids, new_weights = torch.empty_like(ids), torch.empty_like(weights)
        scratch = gpu.workspace(ids.shape[0], ids.shape[1], self.table.num_experts, ids.device)
        reroute_into(ids, weights, kinds, self.table, self.options, new_ids, new_weights, counts, scratch)
        return new_ids, new_weights

    def in_place(self, ids: Tensor, weights: Tensor) -> bool:
        """Whether :meth:`turn` and :meth:`take` reach a captured graph: the GPU kernels read the order."""
        return backend_name(ids, weights, self.table.num_experts) == "triton"

    def turn(self, on: bool) -> None:
        """Turn re-routing off or on where graphs are replayed, by writing into the table.

        Off, no expert has a substitute, so all that are routed stay. Nothing but the order changes: rows
        are merged and padding is redirected as before, neither of which changes what a token gets.
        """
        own = torch.arange(self.table.num_experts, device=self.table.order.device).unsqueeze(1)
        self.table.order.copy_(self._order if on else own)

    def fits(self, other: object) -> bool:
        """Whether ``other`` differs in nothing but its table, so that :meth:`take` can take it over."""
        if not isinstance(other, Fused):
            return False
        return replace(other.options, threshold=self.options.threshold) == self.options

    def take(self, other: Fused) -> None:
        """Take over another table, at this one's address."""
        self.table.similarity.copy_(other.table.similarity)
        self.table.order.copy_(other.table.order)
        self._order = other._order
        self.table = LayerTable(self.table.similarity, self.table.order, other.table.threshold)
        self.options = other.options
