"""Fill: what becomes of a slot whose expert is not active."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from sere.errors import PolicyError, RoutingError
from sere.routing.batch import RoutingBatch, expert_mask, lookup, ranks
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part
from sere.routing.select import Selection


@dataclass(frozen=True)
class Filled:
    """Outcome of a fill.

    Attributes:
        ids: Experts after filling, shape [T, K], dtype of the batch. A removed slot names an active
            expert of its own row, so that an engine that runs it reads nothing more.
        removed: Slots that no longer contribute, shape [T, K], bool.
        active: Experts that the step will load, shape [E], bool.
        weights: What the slots weigh before weighing, shape [T, K]; None means what the router gave.

    """

    ids: Tensor
    removed: Tensor
    active: Tensor
    weights: Tensor | None = None


class Fill(Protocol):
    """Rewrites the slots that a selection did not keep."""

    def __call__(
        self,
        batch: RoutingBatch,
        valid: Tensor,
        open_slots: Tensor,
        chosen: Selection,
        layer: LayerStatistics,
    ) -> Filled:
        """Fill.

        Args:
            batch: The step's routing.
            valid: Slots that carry a routed expert, shape [T, K], bool.
            open_slots: Slots to fill, shape [T, K], bool.
            chosen: What was selected.
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

    def inert(self) -> str | None:
        """Say why the fill restores every slot, or None."""
        ...


@dataclass(frozen=True)
class MostSimilar(Part):
    """Send a slot to the active expert most similar to its own.

    For a secondary expert u and the active experts P: ``argmax over p in P of S[u, p]`` if that
    similarity is at least ``threshold``; otherwise u is *critical*: it stays, and is no substitute
    for others. Equal similarities: the lowest expert id. Compared in float32.

    Attributes:
        threshold: rho in [0, inf). 0 means no cutoff (raw cosines can be negative); above 1 nothing
            is replaced.

    Source: arXiv 2602.07616, section on similarity-based re-routing.

    """

    threshold: float = 0.0

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise PolicyError(f"threshold must be 0 (no cutoff) or positive, got {self.threshold}.")

    def __call__(
        self,
        batch: RoutingBatch,
        valid: Tensor,
        open_slots: Tensor,
        chosen: Selection,
        layer: LayerStatistics,
    ) -> Filled:
        """Look up every open slot's substitute."""
        if layer.similarity is None or layer.similarity.shape[0] != batch.num_experts:
            shape = None if layer.similarity is None else tuple(layer.similarity.shape)
            raise RoutingError(
                f"this policy needs a similarity matrix for {batch.num_experts} experts, got {shape}. "
                "Calibrate this model, or take the artifact that belongs to it."
            )
        ranked = layer.similarity.masked_fill(~chosen.active.unsqueeze(0), float("-inf"))
        substitute = ranked.argmax(1)
        replaceable = chosen.active.any().expand(batch.num_experts)
        if self.threshold > 0:
            cutoff = torch.full((), self.threshold, dtype=torch.float32, device=ranked.device)
            replaceable = replaceable & (ranked.amax(1) >= cutoff)
        replaced = open_slots & lookup(replaceable, batch, valid)
        safe = batch.ids.clamp(0, batch.num_experts - 1).long()
        ids = torch.where(replaced, substitute[safe].to(batch.ids.dtype), batch.ids)
        critical = expert_mask(batch, open_slots & ~replaced)
        return Filled(ids, torch.zeros_like(replaced), chosen.active | critical)

    @property
    def requires(self) -> frozenset[str]:
        """The similarity matrix."""
        return frozenset({"similarity"})

    def inert(self) -> str | None:
        """When no similarity can reach the threshold."""
        return f"threshold={self.threshold} is above every similarity" if self.threshold > 1 else None


@dataclass(frozen=True)
class Drop(Part):
    """Remove the slot: it is pointed at its row's heaviest kept expert, with weight zero."""

    def __call__(
        self,
        batch: RoutingBatch,
        valid: Tensor,
        open_slots: Tensor,
        chosen: Selection,
        layer: LayerStatistics,
    ) -> Filled:
        """Remove every open slot; a row with nothing kept keeps its heaviest slot."""
        return settle(batch, batch.ids, None, valid, open_slots)

    def inert(self) -> str | None:
        """Never."""
        return None


def settle(
    batch: RoutingBatch, ids: Tensor, weights: Tensor | None, valid: Tensor, removed: Tensor
) -> Filled:
    """Point removed slots at their row's heaviest other slot; a row with no other keeps its heaviest.

    Args:
        batch: The step's routing.
        ids: Experts of the slots that are not removed, shape [T, K].
        weights: Their weights before weighing, shape [T, K], or None for the batch's.
        valid: Slots that carry a routed expert, shape [T, K], bool.
        removed: Slots to empty, shape [T, K], bool.

    """
    rank = ranks(batch, valid)
    bare = ~(valid & ~removed).any(1, keepdim=True)
    removed = removed & ~(bare & (rank == 0))
    anchor = rank.masked_fill(removed, batch.top_k).argmin(1, keepdim=True)
    final = torch.where(removed, ids.gather(1, anchor), ids)
    return Filled(final, removed, expert_mask(replace(batch, ids=final), valid), weights)
