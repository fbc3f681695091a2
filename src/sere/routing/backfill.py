"""Fill from within: a row takes the active experts that its router would have liked next."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sere.routing.batch import RouterScores, RoutingBatch, ranks, router_scores, row_sums
from sere.routing.fill import Filled, settle
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part
from sere.routing.select import Selection


@dataclass(frozen=True)
class Backfill(Part):
    """Give a row's open slots to its own next best active experts.

    The open slots, heaviest first, take the active experts that the row does not name yet, in the
    router's order; equal scores: the lowest id; NaN and -inf are never taken. Slots for which no expert is
    left are removed. A backfilled slot weighs what the
    router would have given its new expert, on the scale of the row's own weights.

    Needs the router's scores of all experts, :attr:`RoutingBatch.scores`.

    Source: OEA (arXiv 2511.02237, piggybacking), XShare (arXiv 2602.07265), BASE (arXiv 2609.36222).
    """

    def __call__(
        self,
        batch: RoutingBatch,
        valid: Tensor,
        open_slots: Tensor,
        chosen: Selection,
        layer: LayerStatistics,
    ) -> Filled:
        """Hand out the active experts."""
        scores = router_scores(batch)
        safe = batch.ids.clamp(0, batch.num_experts - 1).long()
        kept = valid & ~open_slots
        order = scores.order.float()
        order = order.masked_fill(~chosen.active.unsqueeze(0) | order.isnan(), float("-inf"))
        order = named_out(order, safe, kept)
        best, experts = order.sort(dim=1, descending=True, stable=True)
        width = min(batch.top_k, batch.num_experts)
        turn = turns(ranks(batch, valid), open_slots).clamp(max=width - 1)
        found = open_slots & (best[:, :width].gather(1, turn) > float("-inf"))
        new = experts[:, :width].gather(1, turn)
        removed = open_slots & ~found
        weights = torch.where(found, on_row_scale(batch, scores, safe, valid, new), batch.weights.float())
        ids = torch.where(found, new.to(batch.ids.dtype), batch.ids)
        return settle(batch, ids, weights, valid, removed)

    @property
    def needs(self) -> frozenset[str]:
        """The router's scores."""
        return frozenset({"scores"})

    def inert(self) -> str | None:
        """Never."""
        return None


def named_out(order: Tensor, ids: Tensor, slots: Tensor) -> Tensor:
    """``order``, shape [T, E], with -inf at the experts that a row's ``slots`` name."""
    rows, experts = order.shape
    index = torch.where(slots, ids, experts)
    named = torch.zeros(rows, experts + 1, dtype=torch.bool, device=order.device)
    return order.masked_fill(named.scatter(1, index, True)[:, :-1], float("-inf"))


def turns(rank: Tensor, slots: Tensor) -> Tensor:
    """Place of each of ``slots`` among them by ``rank``, 0 for the heaviest, shape [T, K], int64."""
    before = rank.unsqueeze(1) < rank.unsqueeze(2)
    return (before & slots.unsqueeze(1)).sum(2)


def on_row_scale(
    batch: RoutingBatch, scores: RouterScores, ids: Tensor, valid: Tensor, experts: Tensor
) -> Tensor:
    """Weights that the router would have given ``experts``, shape [T, K], float32, on the row's own scale.

    The scale is the row's sum of weights over the sum of its experts' scores.
    """
    weight = scores.weight.float()
    own, raw = row_sums(batch.weights, valid), row_sums(weight.gather(1, ids), valid)
    scale = torch.where(raw != 0, own / raw, torch.zeros_like(own))
    return weight.gather(1, experts) * scale
