"""Fold a slot onto an active expert, with what the two gave on the tokens that the router sent to both."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sere.errors import PolicyError
from sere.routing.batch import RoutingBatch, lookup
from sere.routing.fill import Filled, settle
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part
from sere.routing.refit import check_ridge
from sere.routing.scores import needed
from sere.routing.select import Selection


@dataclass(frozen=True)
class Projection(Part):
    """The scalars by which one expert's output stands in for another's, and what is lost.

    Over the tokens routed to both u and v, each weighted by ``|u|``, the regression of u on v:
    ``s = sum |u| <u, v> / (sum |u| |v|^2 + ridge)``, clipped, and the loss
    ``sum |u| |u - s v|^2 / sum |u|^3``, infinite for pairs that no token was routed to.

    Attributes:
        ridge: lambda, added to a sum of cubes of lengths, at least 0.
        clip: Greatest absolute value of a scalar, above 0.

    Source: ExFold, arXiv 2608.24938. Ridge, clip and what an unseen pair is are its published code's.

    """

    ridge: float = 1e-3
    clip: float = 4.0

    def __post_init__(self) -> None:
        check_ridge(self.ridge)
        if not (self.clip > 0 and math.isfinite(self.clip)):
            raise PolicyError(f"clip must be above 0, got {self.clip}.")

    @property
    def requires(self) -> frozenset[str]:
        """The weighted sums."""
        return frozenset({"routed_cross", "routed_target", "routed_source"})

    def scalars(self, layer: LayerStatistics, num_experts: int) -> tuple[Tensor, Tensor]:
        """Return s and the loss of row u folded onto column v, both [E, E], float32."""
        cross = needed(layer.routed_cross, "routed_cross", num_experts)
        target = needed(layer.routed_target, "routed_target", num_experts)
        source = needed(layer.routed_source, "routed_source", num_experts)
        scalar = (cross / (target + self.ridge)).nan_to_num(0.0).clamp(-self.clip, self.clip)
        left = source - 2 * scalar * cross + scalar.square() * target
        loss = torch.where(source > 0, left.clamp(min=0) / source, torch.full_like(source, math.inf))
        return scalar, loss


@dataclass(frozen=True)
class FoldOnto(Projection):
    """Send a slot to the active expert of the least projection loss; equal losses: the lowest id.

    A slot whose expert met no active one in calibration is dropped: its scalar is 0.
    """

    def __call__(
        self,
        batch: RoutingBatch,
        valid: Tensor,
        open_slots: Tensor,
        chosen: Selection,
        layer: LayerStatistics,
    ) -> Filled:
        """Look up every open slot's target."""
        _, loss = self.scalars(layer, batch.num_experts)
        least, target = loss.masked_fill(~chosen.active.unsqueeze(0), math.inf).min(1)
        folded = open_slots & lookup(least < math.inf, batch, valid)
        safe = batch.ids.clamp(0, batch.num_experts - 1).long()
        ids = torch.where(folded, target[safe].to(batch.ids.dtype), batch.ids)
        return settle(batch, ids, None, valid, open_slots & ~folded)

    def inert(self) -> str | None:
        """Never."""
        return None


@dataclass(frozen=True)
class FoldGain(Projection):
    """Give a moved slot its weight times the scalar; nothing is renormalised."""

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled, layer: LayerStatistics
    ) -> Tensor:
        """Scale in float32."""
        scalar, _ = self.scalars(layer, batch.num_experts)
        old = batch.ids.clamp(0, batch.num_experts - 1).long()
        new = filled.ids.clamp(0, batch.num_experts - 1).long()
        moved = valid & eligible.unsqueeze(1) & (filled.ids != batch.ids) & ~filled.removed
        scaled = (batch.weights.float() * scalar[old, new]).to(batch.weights.dtype)
        return torch.where(moved, scaled, batch.weights).masked_fill(filled.removed, 0)
