"""Weigh by a fixed reference: what a row's best experts weigh together, however many are kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sere.errors import PolicyError
from sere.routing.batch import RoutingBatch, router_scores
from sere.routing.fill import Filled
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part
from sere.routing.weigh import before, changed_rows


@dataclass(frozen=True)
class Reference(Part):
    """Divide the router's scores by the mass of the row's ``k`` best experts.

    ``w'_i = p_i / sum of p over the row's top-k``, on the scale of the row's own weights: with k = K the kept
    slots keep their weights, with a greater k they weigh less, with a smaller one more.

    Attributes:
        k: k2, at least 1.

    Source: arXiv 2609.04575, Eq. 2.

    """

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise PolicyError(f"k must be at least 1, got {self.k}.")

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled, layer: LayerStatistics
    ) -> Tensor:
        """Scale in float32."""
        scores = router_scores(batch)
        weight = scores.weight.float()
        best = scores.order.float().sort(dim=1, descending=True, stable=True).indices[:, : self.k]
        own = weight.gather(1, batch.ids.clamp(0, batch.num_experts - 1).long())
        scale = own.masked_fill(~valid, 0).sum(1, keepdim=True) / weight.gather(1, best).sum(1, keepdim=True)
        scale = torch.where(scale.isfinite(), scale, torch.ones_like(scale))
        scaled = (before(batch, filled).float() * scale).to(batch.weights.dtype)
        changed = valid & changed_rows(batch, eligible, filled)
        return torch.where(changed, scaled.masked_fill(filled.removed, 0), batch.weights)

    @property
    def needs(self) -> frozenset[str]:
        """The router's scores."""
        return frozenset({"scores"})
