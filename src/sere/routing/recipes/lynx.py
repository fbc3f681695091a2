"""Lynx: experts that few sure slots want are given up (arXiv 2411.08982)."""

from __future__ import annotations

from sere.routing.backfill import Backfill
from sere.routing.budget import Budget
from sere.routing.policy import Phase, Policy
from sere.routing.recipes.knob import budgets, knob
from sere.routing.votes import Votes
from sere.routing.weigh import Renormalise


@knob("size", budgets)
def lynx(
    size: int = 24, top_s: int = 1, bins: int = 4, floor: int | None = None, phase: Phase = "decode"
) -> Policy:
    """After Lynx: slots vote by confidence bin, the experts of most votes stay, unsure slots are remapped.

    The paper's text was not at hand: that slots are binned by the router's confidence, that bins vote, and
    that only low-confidence slots are remapped is taken from summaries. What they leave open is ours: bins
    are equal parts of the row's greatest weight, a slot has as many votes as its bin's number, a row's
    ``top_s`` surest slots are never remapped, and the others take the row's next best active experts.

    Args:
        size: Active experts.
        top_s: Slots of each row that are never remapped.
        bins: Confidence bins.
        floor: Least number of active experts; None means K.
        phase: ``decode`` or ``all``.

    Source: arXiv 2411.08982.

    """
    return Policy("lynx", Budget(size, Votes(bins), top_s, floor), Backfill(), Renormalise(), phase)
