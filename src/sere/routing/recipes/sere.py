"""SERE: similarity-based expert re-routing (arXiv 2602.07616, ICLR 2026)."""

from __future__ import annotations

from sere.routing.fill import MostSimilar
from sere.routing.policy import Phase, Policy
from sere.routing.recipes.knob import knob, slots
from sere.routing.select import UnionTopS
from sere.routing.weigh import Keep


@knob("top_s", slots)
def sere(
    top_s: int = 2,
    threshold: float = 0.0,
    floor: int | None = None,
    phase: Phase = "decode",
    merge: bool = False,
) -> Policy:
    """``UnionTopS(S) + MostSimilar(rho) + Keep``.

    Args:
        top_s: S, the slots of each row whose experts become primary; 1 <= S < K to have an effect.
        threshold: rho; a secondary expert less similar than this to every primary stays. 0: no cutoff.
        floor: Least number of primary experts; None means K, 0 the published rule.
        phase: ``decode``, or ``all`` as in the paper.
        merge: Sum a row's slots that end on one expert into one slot.

    Returns:
        The policy. With ``floor=0, phase="all"`` it is the published rule.

    """
    return Policy("sere", UnionTopS(top_s, floor), MostSimilar(threshold), Keep(), phase, merge)
