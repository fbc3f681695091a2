"""A policy that selects and then backfills, made ready for the fused kernels: an engine's layer of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sere.kernels.backfilling import BackfillOptions, obstacle
from sere.kernels.definition import add_to
from sere.kernels.dispatch import backend_name
from sere.kernels.op import backfill, backfill_into
from sere.routing import DECODE, PREFILL, LayerStatistics, Policy, RouterScores, RoutingBatch
from sere.routing.batch import router_scores
from sere.routing.budget import Budget
from sere.routing.scores import RouterMass, Score


@dataclass(eq=False)
class FusedBackfill:
    """One layer under a policy of the second family.

    Attributes:
        options: The parameters.
        num_experts: E.
        top_k: K.
        score: What a size is filled up by, if the kernel does not sum it up itself.
        statistics: What the score reads.
        device: Where it runs.
        held: S, floor and size, shape [3], int32; captured graphs read them at this address.

    """

    options: BackfillOptions
    num_experts: int
    top_k: int
    score: Score | None
    statistics: LayerStatistics
    device: torch.device
    held: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.held = torch.tensor(self._numbers(), dtype=torch.int32, device=self.device)

    @classmethod
    def of(
        cls,
        policy: Policy,
        statistics: LayerStatistics,
        num_experts: int,
        top_k: int,
        device: torch.device,
        redirect_padding: bool = True,
    ) -> FusedBackfill | None:
        """Prepare, or return None if the policy is another triple and runs as :meth:`Policy.route`."""
        if obstacle(policy) is not None:
            return None
        score = policy.select.score if isinstance(policy.select, Budget) else None
        score = None if type(score) is RouterMass else score
        options = BackfillOptions.of(policy, redirect_padding)
        return cls(options, num_experts, top_k, score, statistics, device)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What captured graphs read in place."""
        return (self.held,)

    def route(
        self,
        ids: Tensor,
        weights: Tensor,
        kinds: Tensor | None,
        counts: Tensor | None,
        scores: RouterScores | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Re-route one step into fresh tensors; as :meth:`sere.kernels.Fused.route`, with scores.

        Raises:
            RoutingError: If there are no scores, or the score's statistics are missing.

        """
        batch = RoutingBatch(ids, weights, self.num_experts, kinds, scores)
        scores = router_scores(batch)
        total = None if self.score is None else self._total(batch, self.score)
        if counts is None or not self.in_place(ids, weights):
            new_ids, new_weights, step = backfill(ids, weights, kinds, scores, total, self.options)
            if counts is not None:
                add_to(counts, step)
            return new_ids, new_weights
        ids, weights = ids.contiguous(), weights.contiguous()
        new_ids, new_weights = torch.empty_like(ids), torch.empty_like(weights)
        backfill_into(
            ids, weights, kinds, scores, total, self.options, new_ids, new_weights, counts, self.held
        )
        return new_ids, new_weights

    def in_place(self, ids: Tensor, weights: Tensor) -> bool:
        """Whether :meth:`turn` and :meth:`take` reach a captured graph: the GPU kernel reads ``held``."""
        return backend_name(ids, weights, self.num_experts) == "triton"

    def turn(self, on: bool) -> None:
        """Turn re-routing off or on where graphs are replayed: off, all slots are in the top-S."""
        self.held.copy_(torch.tensor(self._numbers() if on else (self.top_k, 0, 0), dtype=torch.int32))

    def fits(self, other: object) -> bool:
        """Whether ``other`` differs in nothing but numbers, so that :meth:`take` can take it over."""
        if not isinstance(other, FusedBackfill):
            return False
        mine = replace(self.options, top_s=other.options.top_s, floor=other.options.floor)
        same = bool(self.options.size) == bool(other.options.size) and self.score == other.score
        return same and replace(mine, size=other.options.size) == other.options

    def take(self, other: FusedBackfill) -> None:
        """Take over another one's numbers, at this one's address."""
        self.options, self.statistics = other.options, other.statistics
        self.held.copy_(other.held)

    def _numbers(self) -> tuple[int, int, int]:
        return self.options.resolved(self.top_k)[:3]

    def _total(self, batch: RoutingBatch, score: Score) -> Tensor:
        eligible = batch.rows(DECODE, PREFILL) if self.options.everyone else batch.rows(DECODE)
        return score.experts(batch, batch.valid() & eligible.unsqueeze(1), self.statistics)
