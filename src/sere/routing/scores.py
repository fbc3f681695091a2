"""Scores: what a selection for the whole step goes by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from sere.errors import PolicyError, RoutingError
from sere.routing.batch import RoutingBatch, router_scores
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part


class Score(Part, ABC):
    """How much every expert is worth to the rows of a step."""

    @abstractmethod
    def experts(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Worth of every expert, shape [E], float32, at least 0; ``voting`` slots [T, K] count."""


class SlotScore(Score):
    """A score that is the sum over an expert's slots."""

    @abstractmethod
    def slots(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Worth of every slot, shape [T, K], float32, at least 0, and 0 where not ``voting``."""

    def experts(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Add up in float64 and round, so that the order of rows and slots does not show."""
        worth = self.slots(batch, voting, layer)
        index = torch.where(voting, batch.ids, batch.num_experts).flatten().long()
        total = torch.zeros(batch.num_experts + 1, dtype=torch.float64, device=worth.device)
        return total.index_add(0, index, worth.flatten().double())[:-1].float()


@dataclass(frozen=True)
class Mass(SlotScore):
    """Routing weight, to a power.

    Attributes:
        power: 1 for mass, 2 for squared mass.
        raw: Take the router's weighting score of the slot instead of the weight after normalisation.

    Source: DES-Vote, arXiv 2602.00879, Eq. 6, with ``raw``.

    """

    power: int = 1
    raw: bool = False

    def __post_init__(self) -> None:
        if self.power < 1:
            raise PolicyError(f"power must be at least 1, got {self.power}.")

    def slots(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Absolute weights: one of another sign still moves the output by that much."""
        weights = batch.weights
        if self.raw:
            weights = router_scores(batch).weight.gather(1, batch.ids.clamp(0, batch.num_experts - 1).long())
        return (weights.float().abs() ** self.power).masked_fill(~voting, 0)

    @property
    def needs(self) -> frozenset[str]:
        """The router's scores if raw."""
        return frozenset({"scores"}) if self.raw else frozenset()


@dataclass(frozen=True)
class RouterMass(Score):
    """Sum over voting rows of the router's score of every expert, routed or not (XShare, MoE-Spec)."""

    def experts(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Add up whole rows in float64."""
        return (
            router_scores(batch)
            .weight.double()
            .abs()
            .masked_fill(~voting.any(1, keepdim=True), 0)
            .sum(0)
            .float()
        )

    @property
    def needs(self) -> frozenset[str]:
        """The router's scores."""
        return frozenset({"scores"})


@dataclass(frozen=True)
class Energy(SlotScore):
    """``(w_tu * norm_u) ** power``: what the slot adds to the layer's output, on average.

    Attributes:
        power: 2 for energy (BASE's static form, arXiv 2609.36222); 1 for mass times norm (ExFold,
            arXiv 2608.24938).
        routed: Take the mean over the tokens that were routed to the expert, not over all; an expert with
            none has the median of the others.

    """

    power: int = 2
    routed: bool = False

    def __post_init__(self) -> None:
        if self.power < 1:
            raise PolicyError(f"power must be at least 1, got {self.power}.")

    def slots(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Weights times calibrated mean norms, to the power."""
        norm = self._norm(layer, batch.num_experts)
        safe = batch.ids.clamp(0, batch.num_experts - 1).long()
        return ((batch.weights.float() * norm[safe]).abs() ** self.power).masked_fill(~voting, 0)

    def _norm(self, layer: LayerStatistics, num_experts: int) -> Tensor:
        if not self.routed:
            return needed(layer.norm, "norm", num_experts)
        total = needed(layer.routed_norm, "routed_norm", num_experts)
        count = needed(layer.routed_count, "routed_count", num_experts).diagonal()
        mean = total / count  # NaN where there are no tokens
        return torch.where(count > 0, mean, mean.nanmedian().nan_to_num(1.0))

    @property
    def requires(self) -> frozenset[str]:
        """The mean output norms."""
        return frozenset({"routed_norm", "routed_count"} if self.routed else {"norm"})


@dataclass(frozen=True)
class Share(SlotScore):
    """Another score, divided by its row's total, so that every row has one vote to give away.

    Attributes:
        of: The score to normalise.

    """

    of: SlotScore

    def slots(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Shares that sum to one in every voting row."""
        worth = self.of.slots(batch, voting, layer)
        total = worth.sum(1, keepdim=True)
        return torch.where(total > 0, worth / total, torch.zeros_like(worth))

    @property
    def requires(self) -> frozenset[str]:
        """What the inner score requires."""
        return self.of.requires

    @property
    def needs(self) -> frozenset[str]:
        """What the inner score needs."""
        return self.of.needs


def needed(statistic: Tensor | None, name: str, num_experts: int) -> Tensor:
    """Return the statistic, or say that the layer lacks it.

    Raises:
        RoutingError: If it is None or of another number of experts.

    """
    if statistic is None or statistic.shape[0] != num_experts:
        shape = None if statistic is None else tuple(statistic.shape)
        raise RoutingError(
            f"this policy needs the calibrated {name} of {num_experts} experts, got {shape}. "
            "Calibrate this model, or take the artifact that belongs to it."
        )
    return statistic
