"""Select for the whole step at once: a fixed number of experts, or all that a tolerated loss leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sere.errors import PolicyError
from sere.routing.batch import RoutingBatch, expert_mask, lookup, ranks
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part
from sere.routing.scores import Energy, Mass, Score, Share, SlotScore
from sere.routing.select import Selection


@dataclass(frozen=True)
class Budget(Part):
    """The ``size`` experts of the greatest total score.

    Resident experts and every row's ``top_s`` heaviest come first, whatever their score, and count
    towards the size; experts without any score are never added. Equal scores: the lowest id.

    Attributes:
        size: Active experts wanted, at least 1.
        score: What is summed.
        top_s: Slots of each row whose experts are active in any case; 0 for none.
        floor: Least number of active experts; None means K.

    """

    size: int
    score: Score = field(default_factory=Mass)
    top_s: int = 0
    floor: int | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise PolicyError(f"size must be at least 1, got {self.size}.")
        check(self.top_s, self.floor)

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, resident: Tensor, layer: LayerStatistics
    ) -> Selection:
        """Take the best."""
        voting = valid & eligible.unsqueeze(1)
        total = self.score.experts(batch, voting, layer)
        total = torch.where(total > 0, total, 0)  # a NaN is no score
        certain = resident | expert_mask(batch, voting & (ranks(batch, valid) < self.top_s))
        size = max(self.size, batch.top_k if self.floor is None else self.floor)
        active = certain | (places(total, certain) < size) & (total > 0)
        return Selection(active, lookup(active, batch, valid))

    @property
    def requires(self) -> frozenset[str]:
        """What the score requires."""
        return self.score.requires

    @property
    def needs(self) -> frozenset[str]:
        """What the score needs."""
        return self.score.needs

    def inert(self, top_k: int) -> str | None:
        """When every slot is certain."""
        return f"top_s={self.top_s} keeps all {top_k} slots" if self.top_s >= top_k else None


@dataclass(frozen=True)
class Tolerance(Part):
    """Drop the experts that matter least while what is lost stays tolerable.

    Each voting row has a score of 1 to share among its slots. Experts are dropped in rising order of
    their total until dropping one more would take away more than ``share`` of all rows' scores.

    Attributes:
        share: Tolerated loss, from 0 (nothing is dropped) to 1.
        score: What a row's share is measured in.
        top_s: Slots of each row whose experts are never dropped; 0 for none.
        floor: Least number of active experts; None means K.

    """

    share: float
    score: SlotScore = field(default_factory=Energy)
    top_s: int = 0
    floor: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise PolicyError(f"share must be between 0 and 1, got {self.share}.")
        check(self.top_s, self.floor)

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, resident: Tensor, layer: LayerStatistics
    ) -> Selection:
        """Drop from the least on."""
        voting = valid & eligible.unsqueeze(1)
        total = Share(self.score).experts(batch, voting, layer)
        certain = resident | expert_mask(batch, voting & (ranks(batch, valid) < self.top_s))
        place = places(total, certain)
        # Loss if all experts from this place on were dropped.
        tail = torch.zeros_like(total).scatter(0, place, total.masked_fill(certain, 0))
        loss = tail.flip(0).double().cumsum(0).flip(0)[place]
        allowed = self.share * voting.any(1).sum()
        floor = batch.top_k if self.floor is None else self.floor
        named = expert_mask(batch, voting) & ((loss > allowed) | (place < floor))
        active = certain | named
        return Selection(active, lookup(active, batch, valid))

    @property
    def requires(self) -> frozenset[str]:
        """What the score requires."""
        return self.score.requires

    @property
    def needs(self) -> frozenset[str]:
        """What the score needs."""
        return self.score.needs

    def inert(self, top_k: int) -> str | None:
        """When nothing may be lost, or every slot is certain."""
        if self.share == 0:
            return "share=0 tolerates no loss"
        return f"top_s={self.top_s} keeps all {top_k} slots" if self.top_s >= top_k else None


def places(total: Tensor, certain: Tensor) -> Tensor:
    """Place of every expert, shape [E], int64: certain ones first, then by falling total, then by id."""
    by_total = total.sort(descending=True, stable=True).indices
    order = by_total[certain[by_total].logical_not().long().sort(stable=True).indices]
    return torch.zeros_like(order).scatter(0, order, torch.arange(order.shape[0], device=order.device))


def check(top_s: int, floor: int | None) -> None:
    """Refuse numbers below 0.

    Raises:
        PolicyError: If there is one.

    """
    for name, value in (("top_s", top_s), ("floor", floor)):
        if value is not None and value < 0:
            raise PolicyError(f"{name} must be 0 or more, got {value}.")
