"""Weigh: the weight that a slot carries after filling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sere.routing.batch import RoutingBatch
from sere.routing.fill import Filled


class Weigh(Protocol):
    """Gives the slots their weights."""

    def __call__(self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled) -> Tensor:
        """Return weights of shape [T, K] in the batch's dtype; removed slots get zero.

        Args:
            batch: The step's routing.
            valid: Slots that carry a routed expert, shape [T, K], bool.
            eligible: Rows that may be re-routed, shape [T], bool.
            filled: What the fill decided.

        """
        ...


@dataclass(frozen=True)
class Keep:
    """Leave the weights as the router gave them (SERE)."""

    def __call__(self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled) -> Tensor:
        """Zero the removed slots only."""
        return batch.weights.masked_fill(filled.removed, 0)


@dataclass(frozen=True)
class Renormalise:
    """Scale what is left of a row so that it sums to what the row summed to before.

    For routers that normalise their top-k this makes the weights sum to one, as published; for
    those that do not, it keeps the layer's overall gain. Rows that lost no slot are not touched.
    """

    def __call__(self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled) -> Tensor:
        """Scale in float32."""
        full = batch.weights.masked_fill(~valid, 0).float()
        left = full.masked_fill(filled.removed, 0)
        total = left.sum(1, keepdim=True)
        # Weights of both signs can cancel to nothing; then there is no scale to keep.
        scale = torch.where(total != 0, full.sum(1, keepdim=True) / total, torch.ones_like(total))
        changed = valid & eligible.unsqueeze(1) & filled.removed.any(1, keepdim=True)
        return torch.where(changed, (left * scale).to(batch.weights.dtype), batch.weights)
