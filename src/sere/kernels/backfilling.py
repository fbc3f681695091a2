"""The second family, select-then-backfill: its parameters and its definition in torch.

Active experts are chosen for the whole step; a slot whose expert is not active goes to its row's own
next best active expert by router score. OEA (arXiv 2511.02237) is ``top_s = k0``; XShare (2602.07265)
is ``top_s = 1`` and a budget filled up by the sum of scores; MoE-Spec and DES are a budget alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sere.errors import PolicyError
from sere.routing import DECODE, PADDING, PREFILL, LayerStatistics, Routes, RoutingBatch, count
from sere.routing.batch import expert_mask, lookup, ranks
from sere.routing.select import UnionTopS


@dataclass(frozen=True)
class BackfillOptions:
    """Parameters.

    Attributes:
        top_s: Each row's heaviest slots whose experts are active in any case; 0 for none.
        floor: Least size of their union, for which ``top_s`` grows; None means K, 0 none.
        budget: Experts in all, filled up by falling ``preference`` (ties to the lowest id; NaN last);
            0 adds none. Experts that are active in any case may be more than the budget.
        renormalise: Whether a changed row's weights are its experts' scores, scaled to the sum that
            the row's weights had; otherwise filled slots carry their old weights.
        everyone: Whether prefill rows are re-routed too.
        redirect_padding: Whether padding rows are pointed at the lowest expert that the step loads.

    """

    top_s: int = 1
    floor: int | None = None
    budget: int = 0
    renormalise: bool = True
    everyone: bool = False
    redirect_padding: bool = True

    def __post_init__(self) -> None:
        if self.top_s < 0 or self.budget < 0 or (self.floor or 0) < 0:
            raise PolicyError("top_s, floor and budget must be 0 or more.")
        if self.top_s == 0 and self.budget == 0:
            raise PolicyError("nothing would be active. Set top_s or budget.")

    def resolved(self, top_k: int) -> tuple[int, int]:
        """S and floor in a layer with ``top_k`` slots."""
        floor = top_k if self.floor is None else self.floor
        return min(self.top_s, top_k), floor if self.top_s else 0


def definition(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    scores: Tensor,
    preference: Tensor,
    options: BackfillOptions,
) -> tuple[Tensor, Tensor, Tensor]:
    """Re-route.

    A changed row is one with a slot of an inactive expert. Such slots, heaviest first, take the best
    active experts that the row does not name, by falling score, ties to the lowest id. If there are not
    enough, the rest are removed: weight zero, naming the row's heaviest slot's new expert.

    Args:
        ids: Experts, shape [T, K], int32 or int64.
        weights: Weights, shape [T, K], floating.
        kinds: Row kinds, shape [T], or None for decode rows only.
        scores: Router scores, shape [T, E], float32: what weights were made of. NaN counts as -inf.
        preference: What the budget goes by, shape [E], float32, greater first.
        options: The parameters.

    Returns:
        Ids, weights and counters, as :func:`sere.kernels.definition.reroute`.

    """
    experts, top_k = scores.shape[1], ids.shape[1]
    batch = RoutingBatch(ids, weights, experts, kinds)
    valid = batch.valid() & ~batch.rows(PADDING).unsqueeze(1)
    eligible = batch.rows(DECODE, PREFILL) if options.everyone else batch.rows(DECODE)
    active = _active(batch, valid, eligible, preference, options)
    rank = ranks(batch, valid)
    voting = valid & eligible.unsqueeze(1)
    open_slots = voting & ~lookup(active, batch, valid)
    scores = scores.nan_to_num(nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))

    safe = ids.clamp(0, experts - 1).long()
    own = torch.zeros(len(ids), experts + 1, dtype=torch.bool, device=ids.device)
    own = own.scatter(1, torch.where(valid, safe, experts), True)[:, :-1]
    candidates = active.unsqueeze(0) & ~own
    order = scores.masked_fill(~candidates, float("-inf")).sort(dim=1, descending=True, stable=True).indices
    # Candidates whose score is -inf come after all others, but before those that are none.
    order = order.gather(1, (~candidates).gather(1, order).to(torch.int8).argsort(dim=1, stable=True))
    turn = (open_slots.unsqueeze(1) & (rank.unsqueeze(1) < rank.unsqueeze(2))).sum(2)
    filled = open_slots & (turn < candidates.sum(1, keepdim=True))
    picked = order.gather(1, turn.clamp(max=experts - 1))
    new_ids = torch.where(filled, picked, ids.long())
    removed = open_slots & ~filled
    anchor = rank.masked_fill(removed, top_k).argmin(1, keepdim=True)
    new_ids = torch.where(removed, new_ids.gather(1, anchor), new_ids).to(ids.dtype)
    new_weights = weights.masked_fill(removed, 0)
    if options.renormalise:
        changed = voting & open_slots.any(1, keepdim=True)
        new_weights = _renormalise(weights, scores, new_ids, rank, changed, removed)
    loaded = expert_mask(RoutingBatch(new_ids, weights, experts, kinds), valid & ~removed)
    if options.redirect_padding:
        moved = batch.rows(PADDING).unsqueeze(1) & batch.valid() & loaded.any()
        new_ids = torch.where(moved, loaded.long().argmax().to(ids.dtype), new_ids)
    return new_ids, new_weights, count(batch, Routes(new_ids, new_weights, removed, loaded))


def _active(
    batch: RoutingBatch, valid: Tensor, eligible: Tensor, preference: Tensor, options: BackfillOptions
) -> Tensor:
    """Experts that stay, shape [E]: residents, the union of top-S, and the budget's best."""
    resident = expert_mask(batch, valid & ~eligible.unsqueeze(1))
    top_s, floor = options.resolved(batch.top_k)
    forced = resident
    if top_s:
        forced = UnionTopS(top_s, floor)(batch, valid, eligible, resident, LayerStatistics()).active
    likes = preference.float().nan_to_num(nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))
    order = likes.sort(dim=0, descending=True, stable=True).indices
    free = ~forced[order]
    taken = free & (free.cumsum(0) <= options.budget - forced.sum())
    return forced.scatter(0, order, forced[order] | taken)


def _renormalise(
    weights: Tensor, scores: Tensor, new_ids: Tensor, rank: Tensor, changed: Tensor, removed: Tensor
) -> Tensor:
    """Scores of the changed rows' experts, scaled; both sums run by falling weight, in float32."""
    safe = new_ids.clamp(0, scores.shape[1] - 1).long()
    raw = scores.gather(1, safe).masked_fill(removed | ~changed, 0)
    before = _ordered_sum(weights.float().masked_fill(~changed, 0), rank)
    after = _ordered_sum(raw, rank)
    usable = after.isfinite() & before.isfinite() & (after != 0)
    scaled = raw * torch.where(usable, before / after, torch.ones_like(after))
    result = torch.where(usable, scaled, weights.float().masked_fill(removed, 0))
    return torch.where(changed, result.to(weights.dtype), weights)


def _ordered_sum(values: Tensor, rank: Tensor) -> Tensor:
    total = values.new_zeros(len(values), 1)
    for place in range(values.shape[1]):
        # At most one slot has the place, so this sum is exact.
        total = total + values.masked_fill(rank != place, 0).sum(1, keepdim=True)
    return total
