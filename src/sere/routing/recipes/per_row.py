"""Recipes that shorten each row by itself."""

from __future__ import annotations

from typing import Literal

from sere.routing.fill import Drop
from sere.routing.per_row import Ratio, TailMass
from sere.routing.policy import Phase, Policy
from sere.routing.recipes.knob import knob, slots
from sere.routing.reference import Reference
from sere.routing.select import PerRow, Select
from sere.routing.weigh import Keep, Renormalise, Weigh


@knob("beta", lambda _experts, _top_k: (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05))
def naee(beta: float = 0.3, rule: Literal["mass", "ratio"] = "mass", phase: Phase = "decode") -> Policy:
    """NAEE's dynamic skipping: a row drops its lightest slots, the rest is renormalised.

    Args:
        beta: With ``mass``, the share of the row's weight that may go; with ``ratio``, the least ratio to
            the heaviest slot. The paper takes the median ratio of each layer, for two slots.
        rule: ``mass`` is the paper's for any number of slots (appendix A.2); ``ratio`` its rule for two,
            as it is usually extended. For two slots they agree with ``ratio = mass / (1 - mass)``.
        phase: ``decode`` or ``all``, as published.

    Source: arXiv 2402.14800, section 3.3 and appendix A.2.

    """
    select: Select = TailMass(beta) if rule == "mass" else Ratio(beta)
    return Policy("naee", select, Drop(), Renormalise(), phase)


@knob("k1", slots)
def k1k2(k1: int = 4, k2: int | None = None, phase: Phase = "decode") -> Policy:
    """Keep ``k1`` slots a row and divide by the mass of the row's top ``k2``.

    Args:
        k1: Slots kept.
        k2: Experts whose mass the weights are divided by. None means K: kept slots keep their weights. A
            number needs the router's scores; more than K makes kept slots lighter.
        phase: ``decode`` or ``all``, as published.

    Source: arXiv 2609.04575, Eq. 2.

    """
    weigh: Weigh = Keep() if k2 is None else Reference(k2)
    return Policy("k1k2", PerRow(k1), Drop(), weigh, phase)
