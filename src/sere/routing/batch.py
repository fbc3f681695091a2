"""One MoE layer's routing in one step, as every policy sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from sere.errors import RoutingError

DECODE: Final = 0
"""Row kind: a token being generated; may be re-routed and votes."""
PREFILL: Final = 1
"""Row kind: a prompt token; kept as routed, and its experts are resident."""
PADDING: Final = 2
"""Row kind: not a token; neither votes nor counts."""


@dataclass(frozen=True)
class RouterScores:
    """What the router thought of every expert, routed or not.

    Attributes:
        order: What it took its top-K of, selection biases included, shape [T, E], floating; greater is
            preferred. Group limits of grouped routers are not applied.
        weight: Its weighting score before the top-K is normalised, shape [T, E], floating: a row's
            slots carry these up to one positive factor a row.

    """

    order: Tensor
    weight: Tensor


@dataclass(frozen=True)
class RoutingBatch:
    """T rows of K slots over E experts.

    Attributes:
        ids: Expert of every slot, shape [T, K], int32 or int64. Slots need not be sorted by weight.
        weights: Routing weight of every slot, shape [T, K], any floating dtype.
        num_experts: E, the number of routed experts. Ids below 0 or at and above E (fused shared
            experts, sentinels) are left alone.
        kinds: Row kinds, shape [T], any integer dtype; None means that every row is ``DECODE``.
        scores: The router's scores of all experts, for policies that need them.
        hidden: The layer's input, shape [T, H], for policies that need it.

    Raises:
        RoutingError: If the shapes or dtypes do not fit together.

    """

    ids: Tensor
    weights: Tensor
    num_experts: int
    kinds: Tensor | None = None
    scores: RouterScores | None = None
    hidden: Tensor | None = None

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.shape != self.weights.shape:
            raise RoutingError(
                f"ids and weights must both have shape [rows, slots], got {tuple(self.ids.shape)} and "
                f"{tuple(self.weights.shape)}. Flatten batch and sequence into rows first."
            )
        if self.ids.dtype not in (torch.int32, torch.int64):
            raise RoutingError(f"ids must be int32 or int64, got {self.ids.dtype}. Cast them first.")
        if not self.weights.is_floating_point():
            raise RoutingError(f"weights must be floating point, got {self.weights.dtype}.")
        if self.num_experts < 1:
            raise RoutingError(f"num_experts must be at least 1, got {self.num_experts}.")
        if self.kinds is not None and self.kinds.shape != self.ids.shape[:1]:
            raise RoutingError(
                f"kinds must have one entry a row, got shape {tuple(self.kinds.shape)} "
                f"for {self.ids.shape[0]} rows."
            )
        if self.scores is not None:
            shape = (self.ids.shape[0], self.num_experts)
            if self.scores.order.shape != shape or self.scores.weight.shape != shape:
                raise RoutingError(
                    f"scores must have shape {shape}, rows and experts, got "
                    f"{tuple(self.scores.order.shape)} and {tuple(self.scores.weight.shape)}."
                )

    @property
    def top_k(self) -> int:
        """K, the number of slots of a row."""
        return self.ids.shape[1]

    def valid(self) -> Tensor:
        """Slots that carry a routed expert, shape [T, K], bool.

        Ids outside [0, E), weights of zero and weights that are NaN are not valid; rows of kind
        ``PADDING`` are judged separately, by :meth:`rows`.
        """
        in_range = (self.ids >= 0) & (self.ids < self.num_experts)
        return in_range & (self.weights != 0) & ~self.weights.isnan()

    def rows(self, *kinds: int) -> Tensor:
        """Rows of any of ``kinds``, shape [T], bool."""
        if self.kinds is None:
            value = DECODE in kinds
            return torch.full((self.ids.shape[0],), value, dtype=torch.bool, device=self.ids.device)
        found = self.kinds == kinds[0]
        for kind in kinds[1:]:
            found = found | (self.kinds == kind)
        return found


def router_scores(batch: RoutingBatch) -> RouterScores:
    """Return the batch's scores of all experts.

    Raises:
        RoutingError: If the engine did not hand them over.

    """
    if batch.scores is None:
        raise RoutingError(
            "this policy needs the router's scores of all experts, which this engine did not hand over. "
            "Choose a policy that works on the routed slots alone, such as sere."
        )
    return batch.scores


def ranks(batch: RoutingBatch, valid: Tensor) -> Tensor:
    """Place of every valid slot in its row, 0 for the greatest weight, shape [T, K], int64.

    Equal weights: the lowest expert id first. Slots that are not valid get K. The comparison is
    K x K a row, which beats a sort for the K of real models and is stable on every device.

    Args:
        batch: The step's routing.
        valid: Slots that take part, shape [T, K], bool.

    """
    weights, ids = batch.weights, batch.ids
    mine_w, other_w = weights.unsqueeze(2), weights.unsqueeze(1)
    mine_id, other_id = ids.unsqueeze(2), ids.unsqueeze(1)
    place = torch.arange(batch.top_k, device=ids.device)
    earlier = (other_id == mine_id) & (place.view(1, 1, -1) < place.view(1, -1, 1))
    before = (other_w > mine_w) | ((other_w == mine_w) & ((other_id < mine_id) | earlier))
    rank = (before & valid.unsqueeze(1)).sum(2)
    return rank.masked_fill(~valid, batch.top_k)


def row_sums(values: Tensor, slots: Tensor) -> Tensor:
    """Sum of every row's ``slots``, shape [T, 1], float32, added up in float64 and rounded.

    So the order of the slots does not show, on any device: the sum is exact unless the values of a row are
    more than some 2**25 apart.

    Args:
        values: What is summed, shape [T, K], floating.
        slots: Slots that take part, shape [T, K], bool.

    """
    return values.double().masked_fill(~slots, 0).sum(1, keepdim=True).float()


def expert_mask(batch: RoutingBatch, slots: Tensor) -> Tensor:
    """Experts named by any of ``slots``, shape [E], bool.

    Args:
        batch: The step's routing.
        slots: Slots to look at, shape [T, K], bool; they must be valid ones.

    """
    index = torch.where(slots, batch.ids, batch.num_experts).flatten().long()
    mask = torch.zeros(batch.num_experts + 1, dtype=torch.bool, device=batch.ids.device)
    return mask.index_fill(0, index, True)[:-1]


def lookup(mask: Tensor, batch: RoutingBatch, valid: Tensor) -> Tensor:
    """``mask[id]`` for every valid slot and False elsewhere, shape [T, K]; ``mask`` has shape [E]."""
    safe = batch.ids.clamp(0, batch.num_experts - 1).long()
    return mask[safe] & valid
