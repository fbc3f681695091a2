"""The two controls that every comparison carries."""

from __future__ import annotations

from sere.routing.fill import Drop
from sere.routing.policy import Phase, Policy
from sere.routing.select import Everything, PerRow
from sere.routing.weigh import Keep, Renormalise


def none() -> Policy:
    """Keep every slot: the routing passes through the whole path and comes out bit for bit."""
    return Policy("none", Everything(), Drop(), Keep())


def top_k(k: int = 2, renormalise: bool = True, phase: Phase = "decode") -> Policy:
    """Plain truncation: every row keeps its ``k`` heaviest experts, the mandatory baseline.

    Args:
        k: Experts kept a row.
        renormalise: Scale the kept weights to the row's old sum; otherwise leave them.
        phase: ``decode`` or ``all``.

    """
    return Policy("top_k", PerRow(k), Drop(), Renormalise() if renormalise else Keep(), phase)
