"""Fill by calibration: the active expert whose scaled output loses least."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sere.routing.batch import RoutingBatch, expert_mask, lookup
from sere.routing.fill import Filled
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part
from sere.routing.scores import needed
from sere.routing.select import Selection


@dataclass(frozen=True)
class MinLoss(Part):
    """Send a slot to the active expert on whose output its own projects with the least loss.

    ``L[u, v] = 1 - G[u, v] ** 2 / (G[u, u] G[v, v])`` with the calibrated second moments G, that is, the
    greatest squared correlation, whatever its sign: made for :class:`~sere.routing.refit.Project`. Equal
    losses: the lowest expert id.

    Source: ExFold, arXiv 2608.24938, whose moments are of co-routed pairs only and weighted by norm.

    """

    def __call__(
        self,
        batch: RoutingBatch,
        valid: Tensor,
        open_slots: Tensor,
        chosen: Selection,
        layer: LayerStatistics,
    ) -> Filled:
        """Look up every open slot's substitute."""
        gram = needed(layer.gram, "gram", batch.num_experts)
        kept = (gram.square() / gram.diagonal().unsqueeze(0)).nan_to_num(0.0)
        substitute = kept.masked_fill(~chosen.active.unsqueeze(0), float("-inf")).argmax(1)
        moved = open_slots & lookup(chosen.active.any().expand(batch.num_experts), batch, valid)
        safe = batch.ids.clamp(0, batch.num_experts - 1).long()
        ids = torch.where(moved, substitute[safe].to(batch.ids.dtype), batch.ids)
        return Filled(ids, torch.zeros_like(moved), chosen.active | expert_mask(batch, open_slots & ~moved))

    @property
    def requires(self) -> frozenset[str]:
        """The second moments."""
        return frozenset({"gram"})

    def inert(self) -> str | None:
        """Never."""
        return None
