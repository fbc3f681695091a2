"""Many steps of one layer through a policy at once, each as if it were alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from sere.routing import FIELDS, LayerStatistics, Policy, RouterScores, RoutingBatch, count

LARGEST: Final = 1 << 24
"""Numbers that the greatest intermediate of a chunk of steps may have, about."""

Given = Mapping[str, Tensor]
"""``ids`` and ``weights``, and where the policy needs them ``order``, ``weight`` (scores), ``hidden``."""


@dataclass
class Grouped:
    """Runs a policy over groups of rows that do not see each other.

    A policy is written for one step. ``torch.vmap`` runs it over all steps of a text with the same
    arithmetic and a hundredth of the calls; a policy with an operation that it cannot do runs step by step.

    Attributes:
        policy: The policy.
        one_by_one: Whether steps run one after the other; set when vmap refuses.

    """

    policy: Policy
    one_by_one: bool = field(default=False)

    def route(
        self, given: Given, statistics: LayerStatistics, num_experts: int, kind: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Re-route every group.

        Args:
            given: Tensors of shape [G, R, ...]: G groups of R rows.
            statistics: The layer's.
            num_experts: E.
            kind: Row kind of all rows.

        Returns:
            Ids and weights, both [G, R, K], and counters, shape [G, len(FIELDS)], int64.

        """
        groups, rows, slots = given["ids"].shape
        kinds = torch.full((rows,), kind, device=given["ids"].device)
        if groups == 0:
            return given["ids"], given["weights"], torch.zeros(0, len(FIELDS), dtype=torch.long)

        def one(group: Given) -> tuple[Tensor, Tensor, Tensor]:
            scores = RouterScores(group["order"], group["weight"]) if "order" in group else None
            batch = RoutingBatch(
                group["ids"], group["weights"], num_experts, kinds, scores=scores, hidden=group.get("hidden")
            )
            routes = self.policy.route(batch, statistics)
            return routes.ids, routes.weights, count(batch, routes)

        if not self.one_by_one:
            chunk = max(1, LARGEST // max(rows * slots * num_experts, num_experts**2))
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "There is a performance drop")
                    return torch.vmap(one, chunk_size=chunk)(dict(given))
            except RuntimeError as error:
                if "vmap" not in str(error):
                    raise
                self.one_by_one = True
        routed = [one({name: value[group] for name, value in given.items()}) for group in range(groups)]
        ids, weights, counted = (torch.stack(values) for values in zip(*routed, strict=True))
        return ids, weights, counted
