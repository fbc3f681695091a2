"""Merge: one slot for each expert of a row, with the summed weight."""

from __future__ import annotations

import torch
from torch import Tensor

from sere.routing.batch import RoutingBatch


def merge_slots(
    batch: RoutingBatch, ids: Tensor, weights: Tensor, slots: Tensor, rank: Tensor
) -> tuple[Tensor, Tensor]:
    """Sum the weights of a row's slots that name the same expert into the heaviest of them.

    Args:
        batch: The step's routing before the policy.
        ids: Experts after filling, shape [T, K].
        weights: Weights after weighing, shape [T, K].
        slots: Slots that may be merged, shape [T, K], bool.
        rank: Place of every slot in its row before the policy, shape [T, K], a permutation for the
            merged slots. The sum runs in this order, in float32, so it does not depend on slot order.

    Returns:
        The new weights, shape [T, K], and the slots emptied by merging, shape [T, K], bool. An
        emptied slot keeps naming its expert, with weight zero.

    """
    order = rank.argsort(dim=1, stable=True)
    sorted_ids = ids.gather(1, order)
    live = slots.gather(1, order)
    values = weights.gather(1, order).float().masked_fill(~live, 0)
    same = (sorted_ids.unsqueeze(2) == sorted_ids.unsqueeze(1)) & live.unsqueeze(1) & live.unsqueeze(2)
    place = torch.arange(batch.top_k, device=ids.device)
    emptied = (same & (place.view(1, 1, -1) < place.view(1, -1, 1))).any(2)
    alone = same.sum(2) < 2
    total = torch.zeros_like(values)
    for column in range(batch.top_k):
        # Not by a product, in which an infinite weight would become NaN in the slots of other experts.
        total = total + values[:, column : column + 1].expand_as(total).masked_fill(~same[:, :, column], 0)
    summed = torch.where(emptied, torch.zeros_like(total), total).to(weights.dtype)
    merged = torch.where(alone, weights.gather(1, order), summed)
    back = order.argsort(dim=1)
    return merged.gather(1, back), emptied.gather(1, back)
