"""One policy for small steps, another for large ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sere.errors import PolicyError
from sere.routing.batch import RoutingBatch
from sere.routing.fill import Drop
from sere.routing.layer import LayerStatistics
from sere.routing.policy import Policy, Routes
from sere.routing.select import Everything
from sere.routing.weigh import Keep

UNCHANGED: Final = Policy("none", Everything(), Drop(), Keep())
"""Leaves every slot as routed; it returns the very tensors of the batch."""


@dataclass(frozen=True)
class ByRows(Policy):
    """Chooses a policy by the number of rows of the step, on the host, from a tensor's shape.

    Rows of prompts and padding count: a step that holds a prompt is a large one.

    Attributes:
        choices: Pairs of the least number of rows and the policy from there on, rising; steps of fewer
            rows than the first stay as routed.

    """

    choices: tuple[tuple[int, Policy], ...] = ()

    @classmethod
    def of(cls, choices: tuple[tuple[int, Policy], ...]) -> ByRows:
        """Put policies together.

        Raises:
            PolicyError: If there is none, the numbers do not rise from 1 or more, or the phases differ.

        """
        rows = [least for least, _ in choices]
        if not rows or rows[0] < 1 or any(low >= high for low, high in pairwise(rows)):
            raise PolicyError(f"policies by rows need rising numbers of rows from 1 on, got {rows}.")
        phases = {policy.phase for _, policy in choices if policy.name != "none"}
        if len(phases) > 1:
            raise PolicyError("policies by rows must have one phase: write phase=decode or phase=all in all.")
        phase = phases.pop() if phases else "decode"
        return cls("by_rows", Everything(), Drop(), Keep(), phase, choices=choices)

    def at(self, rows: int) -> Policy:
        """Return the policy of a step of ``rows`` rows."""
        chosen = UNCHANGED
        for least, policy in self.choices:
            if rows >= least:
                chosen = policy
        return chosen

    @property
    def requires(self) -> frozenset[str]:
        """What any of them requires."""
        return frozenset[str]().union(*(policy.requires for _, policy in self.choices))

    @property
    def needs(self) -> frozenset[str]:
        """What any of them needs."""
        return frozenset[str]().union(*(policy.needs for _, policy in self.choices))

    def inert(self, top_k: int) -> str | None:
        """When all of them are."""
        reasons = [policy.inert(top_k) for _, policy in self.choices]
        return reasons[0] if all(reasons) else None

    def route(self, batch: RoutingBatch, layer: LayerStatistics, redirect_padding: bool = False) -> Routes:
        """Route by the policy of the batch's rows; see :meth:`Policy.route`."""
        return self.at(batch.ids.shape[0]).route(batch, layer, redirect_padding)
