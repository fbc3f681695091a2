"""Weigh: the weight that a slot carries after filling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sere.routing.batch import RoutingBatch, row_sums
from sere.routing.fill import Filled
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part


class Weigh(Protocol):
    """Gives the slots their weights."""

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled, layer: LayerStatistics
    ) -> Tensor:
        """Return weights of shape [T, K] in the batch's dtype; removed slots get zero.

        Args:
            batch: The step's routing.
            valid: Slots that carry a routed expert, shape [T, K], bool.
            eligible: Rows that may be re-routed, shape [T], bool.
            filled: What the fill decided.
            layer: The layer's calibrated statistics.

        """
        ...

    @property
    def requires(self) -> frozenset[str]:
        """See :class:`~sere.routing.part.Part`."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """See :class:`~sere.routing.part.Part`."""
        ...


def before(batch: RoutingBatch, filled: Filled) -> Tensor:
    """Weights before weighing, shape [T, K]; those of the batch itself where the fill gave none."""
    return batch.weights if filled.weights is None else filled.weights


def changed_rows(batch: RoutingBatch, eligible: Tensor, filled: Filled) -> Tensor:
    """Rows in which a slot was moved or removed, shape [T, 1], bool."""
    changed = (filled.ids != batch.ids) | filled.removed
    return changed.any(1, keepdim=True) & eligible.unsqueeze(1)


@dataclass(frozen=True)
class Keep(Part):
    """Leave the weights as the router gave them (SERE)."""

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled, layer: LayerStatistics
    ) -> Tensor:
        """Zero the removed slots only."""
        return before(batch, filled).to(batch.weights.dtype).masked_fill(filled.removed, 0)


@dataclass(frozen=True)
class Renormalise(Part):
    """Scale a changed row so that it sums to what it summed to before.

    For routers that normalise their top-k this makes the weights sum to one, as published; for
    those that do not, it keeps the layer's overall gain. Rows in which nothing changed are not touched.
    """

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled, layer: LayerStatistics
    ) -> Tensor:
        """Scale in float32."""
        full, left = row_sums(batch.weights, valid), before(batch, filled).float()
        left = left.masked_fill(filled.removed | ~valid, 0)
        total = row_sums(left, valid)
        # Weights of both signs can cancel to nothing; then there is no scale to keep.
        scale = torch.where(total != 0, full / total, torch.ones_like(total))
        changed = valid & changed_rows(batch, eligible, filled)
        return torch.where(changed, (left * scale).to(batch.weights.dtype), batch.weights)
