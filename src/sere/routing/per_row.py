"""Select row by row, whatever the other rows do, by how the row's weights fall off."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sere.errors import PolicyError
from sere.routing.batch import RoutingBatch, expert_mask, ranks
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part
from sere.routing.select import Selection


@dataclass(frozen=True)
class TailMass(Part):
    """Each row drops its lightest slots while they weigh at most ``beta`` of the row's total.

    The heaviest slot always stays.

    Attributes:
        beta: Share of the row's total weight that may go, in [0, 1).

    Source: NAEE, arXiv 2402.14800, appendix A.2.

    """

    beta: float

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise PolicyError(f"beta must be at least 0 and under 1, got {self.beta}.")

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, resident: Tensor, layer: LayerStatistics
    ) -> Selection:
        """Compare what would be dropped from each slot on, added up from the lightest."""
        rank = ranks(batch, valid)
        weights = batch.weights.double().masked_fill(~valid, 0)
        lighter = rank.unsqueeze(1) >= rank.unsqueeze(2)
        ordered = torch.where(lighter & valid.unsqueeze(1), weights.unsqueeze(1), 0.0).sum(2)
        kept = (ordered > self.beta * weights.sum(1, keepdim=True)) | (rank == 0)
        return _selection(batch, valid, eligible, kept)

    def inert(self, top_k: int) -> str | None:
        """When there is nothing to drop."""
        return "each row has one slot" if top_k == 1 else None


@dataclass(frozen=True)
class Ratio(Part):
    """Each row drops slots lighter than ``beta`` times its heaviest.

    Attributes:
        beta: Least ratio to the heaviest slot, in [0, 1].

    Source: NAEE, arXiv 2402.14800, section 3.3, for two slots; its usual extension to more.

    """

    beta: float

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise PolicyError(f"beta must be between 0 and 1, got {self.beta}.")

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, resident: Tensor, layer: LayerStatistics
    ) -> Selection:
        """Compare with the heaviest in float32."""
        weights = batch.weights.float().masked_fill(~valid, float("-inf"))
        kept = (weights >= self.beta * weights.amax(1, keepdim=True)) | (ranks(batch, valid) == 0)
        return _selection(batch, valid, eligible, kept)

    def inert(self, top_k: int) -> str | None:
        """When there is nothing to drop."""
        return "each row has one slot" if top_k == 1 else None


def _selection(batch: RoutingBatch, valid: Tensor, eligible: Tensor, kept: Tensor) -> Selection:
    stays = valid & (kept | ~eligible.unsqueeze(1))
    return Selection(expert_mask(batch, stays), stays)
