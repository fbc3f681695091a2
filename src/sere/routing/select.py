"""Select: which slots keep their expert, and with that which experts stay active."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sere.errors import PolicyError
from sere.routing.batch import RoutingBatch, expert_mask, lookup, ranks
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part


@dataclass(frozen=True)
class Selection:
    """Outcome of a selection.

    Attributes:
        active: Experts that the step will load, and that a fill may send slots to, shape [E], bool.
        kept: Slots that stay as they are, shape [T, K], bool.

    """

    active: Tensor
    kept: Tensor


class Select(Protocol):
    """Chooses the active experts of one layer and step."""

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, resident: Tensor, layer: LayerStatistics
    ) -> Selection:
        """Choose.

        Args:
            batch: The step's routing.
            valid: Slots that carry a routed expert, shape [T, K], bool, padding rows excluded.
            eligible: Rows that vote and may be re-routed, shape [T], bool.
            resident: Experts that some other row loads in any case, shape [E], bool.
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

    def inert(self, top_k: int) -> str | None:
        """Say why the selection keeps everything in a model with ``top_k`` slots, or None."""
        ...


@dataclass(frozen=True)
class Everything(Part):
    """Keep every slot: the no-op control, which still runs the whole path."""

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, resident: Tensor, layer: LayerStatistics
    ) -> Selection:
        """Keep all."""
        return Selection(expert_mask(batch, valid), valid)

    def inert(self, top_k: int) -> str | None:
        """Say so: it never changes anything."""
        return "it keeps every slot by definition"


@dataclass(frozen=True)
class UnionTopS(Part):
    """SERE's primary experts: the union over rows of each row's ``top_s`` heaviest slots.

    Resident experts count as primary. If the union has fewer than ``floor`` experts, ``top_s``
    grows, for all rows alike, until it has, or until no expert is left.

    Attributes:
        top_s: S, at least 1.
        floor: Least size of the union; None means K, so that a single row is never touched; 0
            gives the published rule.

    Source: arXiv 2602.07616, section on expert selection; the floor is ours (design, semantics 7).

    """

    top_s: int
    floor: int | None = None

    def __post_init__(self) -> None:
        if self.top_s < 1:
            raise PolicyError(f"top_s must be at least 1, got {self.top_s}.")
        if self.floor is not None and self.floor < 0:
            raise PolicyError(f"floor must be 0 or more, got {self.floor}. Leave it out for the default, K.")

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, resident: Tensor, layer: LayerStatistics
    ) -> Selection:
        """Take the union."""
        top_k, experts = batch.top_k, batch.num_experts
        voting = valid & eligible.unsqueeze(1)
        rank = ranks(batch, valid)
        index = torch.where(voting, batch.ids, experts).flatten().long()
        best = torch.full((experts + 1,), top_k, device=batch.ids.device)
        best = best.scatter_reduce(0, index, rank.flatten(), "amin")[:-1].masked_fill(resident, 0)
        sizes = torch.arange(1, top_k + 1, device=batch.ids.device)
        counts = (best.unsqueeze(0) < sizes.unsqueeze(1)).sum(1)
        floor = min(top_k if self.floor is None else self.floor, experts)
        grown = self.top_s + ((counts < floor) & (sizes >= self.top_s)).sum()
        active = best < grown.clamp(max=top_k)
        return Selection(active, lookup(active, batch, valid))

    def inert(self, top_k: int) -> str | None:
        """When every slot is in the top-S."""
        return f"top_s={self.top_s} keeps all {top_k} slots" if self.top_s >= top_k else None


@dataclass(frozen=True)
class PerRow(Part):
    """Each row keeps its ``k`` heaviest slots, whatever the other rows do.

    Attributes:
        k: Slots kept a row, at least 1.

    """

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise PolicyError(f"k must be at least 1, got {self.k}.")

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, resident: Tensor, layer: LayerStatistics
    ) -> Selection:
        """Truncate."""
        kept = valid & ((ranks(batch, valid) < self.k) | ~eligible.unsqueeze(1))
        return Selection(expert_mask(batch, kept), kept)

    def inert(self, top_k: int) -> str | None:
        """When nothing is cut."""
        return f"k={self.k} keeps all {top_k} slots" if self.k >= top_k else None
