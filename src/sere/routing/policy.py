"""Policy: select, then fill, then weigh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sere.errors import PolicyError, RoutingError
from sere.routing.batch import DECODE, PADDING, PREFILL, RoutingBatch, expert_mask, ranks
from sere.routing.fill import Fill
from sere.routing.layer import LayerStatistics
from sere.routing.merge import merge_slots
from sere.routing.select import Select
from sere.routing.weigh import Weigh

Phase = Literal["decode", "all"]


@dataclass(frozen=True)
class Routes:
    """What a policy made of a batch.

    Attributes:
        ids: Experts, shape [T, K], dtype of the batch.
        weights: Weights, shape [T, K], dtype of the batch.
        empty: Slots that contribute nothing any more (dropped or merged), shape [T, K], bool; they
            have weight zero and name an active expert of their row. An engine that has a cheaper
            form of a no-op slot may use it for these.
        active: Experts that the step will load, padding excluded, shape [E], bool.

    """

    ids: Tensor
    weights: Tensor
    empty: Tensor
    active: Tensor


@dataclass(frozen=True)
class Policy:
    """A named way to rewrite the routing of one layer and step.

    Attributes:
        name: Its registered name.
        select: Which experts stay active.
        fill: What becomes of the other slots.
        weigh: The weights afterwards.
        phase: ``decode`` re-routes decode rows only, with prefill rows' experts resident; ``all``
            treats prefill rows as decode rows, as the SERE paper does.
        merge: Whether slots of a row that end on the same expert become one.

    """

    name: str
    select: Select
    fill: Fill
    weigh: Weigh
    phase: Phase = "decode"
    merge: bool = False

    def __post_init__(self) -> None:
        if self.phase not in ("decode", "all"):
            raise PolicyError(f"phase must be 'decode' or 'all', got {self.phase!r}.")

    @property
    def requires(self) -> frozenset[str]:
        """Names of the layer statistics that the policy reads."""
        return self.select.requires | self.fill.requires | self.weigh.requires

    @property
    def needs(self) -> frozenset[str]:
        """Optional fields of the batch that an engine must hand over: ``scores``, ``hidden``."""
        return self.select.needs | self.fill.needs | self.weigh.needs

    def at(self, rows: int) -> Policy:
        """Return the policy of a step of ``rows`` rows: this one, unless it is one by rows."""
        return self

    def of_layer(self, index: int) -> Policy:
        """Return the policy of decoder layer ``index``: this one, unless it is one by layers."""
        return self

    def inert(self, top_k: int) -> str | None:
        """Say why this policy cannot change anything in a model with ``top_k`` slots, or None."""
        return self.select.inert(top_k) or self.fill.inert()

    def route(self, batch: RoutingBatch, layer: LayerStatistics, redirect_padding: bool = False) -> Routes:
        """Rewrite one layer's routing in one step.

        Pure: inputs are not changed; nothing waits for the device; all shapes follow from the
        inputs' shapes. A policy that is :meth:`inert` returns the very tensors of the batch.

        Args:
            batch: The step's routing.
            layer: The layer's statistics; must have all that :attr:`requires` names.
            redirect_padding: Point padding rows' slots at the lowest active expert, for engines
                that run such rows. Their weights are kept.

        Raises:
            RoutingError: If the layer's statistics are missing or of another size, or the batch lacks
                what :attr:`needs` names.

        """
        for name in sorted(self.needs, reverse=True):
            if getattr(batch, name) is None:
                thing = "the layer's input" if name == "hidden" else f"the router's {name}"
                raise RoutingError(
                    f"policy {self.name!r} needs {thing}, which this engine did not hand over. "
                    "Choose a policy that works on the routed slots alone, such as sere."
                )
        valid = batch.valid() & ~batch.rows(PADDING).unsqueeze(1)
        if self.inert(batch.top_k):
            return Routes(batch.ids, batch.weights, torch.zeros_like(valid), expert_mask(batch, valid))
        eligible = batch.rows(DECODE, PREFILL) if self.phase == "all" else batch.rows(DECODE)
        resident = expert_mask(batch, valid & ~eligible.unsqueeze(1))
        chosen = self.select(batch, valid, eligible, resident, layer)
        open_slots = valid & eligible.unsqueeze(1) & ~chosen.kept
        filled = self.fill(batch, valid, open_slots, chosen, layer)
        ids, weights, empty = filled.ids, self.weigh(batch, valid, eligible, filled, layer), filled.removed
        if self.merge:
            slots = valid & eligible.unsqueeze(1) & ~empty
            weights, emptied = merge_slots(batch, ids, weights, slots, ranks(batch, valid))
            empty = empty | emptied
        if redirect_padding:
            target = filled.active.long().argmax().to(ids.dtype)
            moved = batch.rows(PADDING).unsqueeze(1) & batch.valid() & filled.active.any()
            ids = torch.where(moved, target, ids)
        return Routes(ids, weights, empty, filled.active)
