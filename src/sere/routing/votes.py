"""Votes: an expert is worth the slots that name it, each by how sure its row is of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sere.errors import PolicyError
from sere.routing.batch import RoutingBatch
from sere.routing.layer import LayerStatistics
from sere.routing.scores import SlotScore


@dataclass(frozen=True)
class Votes(SlotScore):
    """``ceil(bins * w / row's greatest w)`` votes a slot: 1 in the lowest bin, ``bins`` for the heaviest.

    Attributes:
        bins: Bins of confidence, at least 1; 1 counts slots.

    Source: after Lynx, arXiv 2411.08982; the bins' bounds are ours.

    """

    bins: int = 4

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise PolicyError(f"bins must be at least 1, got {self.bins}.")

    def slots(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Compare with the row's heaviest in float32, whatever the order of the slots."""
        weights = batch.weights.float().abs().masked_fill(~voting, 0)
        most = weights.amax(1, keepdim=True) if batch.top_k else weights
        votes = (weights * (self.bins / most)).ceil().clamp(1, self.bins)
        return torch.where(voting, votes, torch.zeros_like(votes))
