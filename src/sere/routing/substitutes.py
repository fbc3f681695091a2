"""Fills that are controls: another substitute than the most similar one, all else as in SERE."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sere.routing.batch import RoutingBatch
from sere.routing.fill import Filled, MostSimilar
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part
from sere.routing.scores import needed
from sere.routing.select import Selection


@dataclass(frozen=True)
class LeastSimilar(Part):
    """The active expert that is least similar; equal similarities: the lowest id."""

    def __call__(
        self,
        batch: RoutingBatch,
        valid: Tensor,
        open_slots: Tensor,
        chosen: Selection,
        layer: LayerStatistics,
    ) -> Filled:
        """Look for the most similar one under the negated similarity."""
        similarity = needed(layer.similarity, "similarity", batch.num_experts)
        return MostSimilar()(batch, valid, open_slots, chosen, LayerStatistics(-similarity))

    @property
    def requires(self) -> frozenset[str]:
        """The similarity matrix."""
        return frozenset({"similarity"})

    def inert(self) -> str | None:
        """Never."""
        return None


@dataclass(frozen=True)
class Random(Part):
    """An active expert drawn for each expert, the same for all rows and steps with that active set.

    Attributes:
        seed: Seed of the draw.

    """

    seed: int = 0

    def __call__(
        self,
        batch: RoutingBatch,
        valid: Tensor,
        open_slots: Tensor,
        chosen: Selection,
        layer: LayerStatistics,
    ) -> Filled:
        """Look for the most similar one under similarities that are noise."""
        noise = hashed(batch.num_experts, self.seed, batch.ids.device)
        return MostSimilar()(batch, valid, open_slots, chosen, LayerStatistics(noise))

    def inert(self) -> str | None:
        """Never."""
        return None


def hashed(experts: int, seed: int, device: torch.device) -> Tensor:
    """Noise for every pair of experts, shape [E, E], float32, from a hash: no state, the same everywhere."""
    place = torch.arange(experts, dtype=torch.int64, device=device)
    value = place.unsqueeze(1) * 73_856_093 + place.unsqueeze(0) * 19_349_663 + seed * 83_492_791
    for multiplier in (0x45D9F3B, 0x45D9F3B):
        value = (((value >> 16) ^ value) * multiplier) & 0xFFFFFFFF
    return ((value >> 16) ^ value).float()
