"""Recipes that choose active experts for the whole step and let rows backfill from them."""

from __future__ import annotations

from sere.routing.backfill import Backfill
from sere.routing.budget import Budget
from sere.routing.fill import Drop
from sere.routing.policy import Phase, Policy
from sere.routing.recipes.knob import budgets, knob, slots
from sere.routing.scores import Energy, Mass, RouterMass
from sere.routing.select import UnionTopS
from sere.routing.weigh import Renormalise


@knob("top_s", slots)
def oea(top_s: int = 3, floor: int | None = None, phase: Phase = "decode") -> Policy:
    """Opportunistic Expert Activation, the simplified form: ``UnionTopS(k0) + Backfill + Renormalise``.

    Args:
        top_s: k0, slots of each row that are active in any case; the paper takes 3 for Qwen3-30B.
        floor: Least number of active experts; None means K, 0 the published rule.
        phase: ``decode``, as published, or ``all``.

    Source: arXiv 2511.02237, Algorithm 1 and Eq. 1. DES-Seq (arXiv 2602.00879) is the same rule.

    """
    return Policy("oea", UnionTopS(top_s, floor), Backfill(), Renormalise(), phase)


@knob("size", budgets)
def xshare(size: int = 24, top_s: int = 1, floor: int | None = None, phase: Phase = "decode") -> Policy:
    """XShare: every row's best expert, then the greatest total router score up to a budget; backfill.

    Args:
        size: Active experts, resident ones included.
        top_s: Slots of each row that are active in any case; 1 in the paper, 0 in its vLLM patch.
        floor: Least number of active experts; None means K.
        phase: ``decode``, as published, or ``all``.

    Source: arXiv 2602.07265 through summaries; the score is taken to be the router's weighting score.

    """
    return Policy("xshare", Budget(size, RouterMass(), top_s, floor), Backfill(), Renormalise(), phase)


@knob("size", budgets)
def des_vote(size: int = 24, floor: int | None = None, phase: Phase = "decode") -> Policy:
    """DES-Vote: the experts of the greatest total score within the rows' own top-K; backfill.

    Args:
        size: Active experts; the paper's is ``floor(beta * E)``.
        floor: Least number of active experts; None means K.
        phase: ``decode`` or ``all``.

    Source: arXiv 2602.00879, Eq. 6 and Algorithm 3, there over the tokens of one diffusion block.

    """
    return Policy("des_vote", Budget(size, Mass(raw=True), 0, floor), Backfill(), Renormalise(), phase)


@knob("size", budgets)
def moe_spec(
    size: int = 32, substitute: bool = True, floor: int | None = None, phase: Phase = "decode"
) -> Policy:
    """MoE-Spec: the experts of the greatest total router score over all rows.

    Args:
        size: B, active experts.
        substitute: Rows backfill from the active experts; otherwise their other slots are dropped.
        floor: Least number of active experts; None means K.
        phase: ``decode`` or ``all``.

    Source: arXiv 2602.16052, there over the nodes of a draft tree; renormalisation is our choice.

    """
    fill = Backfill() if substitute else Drop()
    return Policy("moe_spec", Budget(size, RouterMass(), 0, floor), fill, Renormalise(), phase)


@knob("size", budgets)
def energy(size: int = 24, top_s: int = 0, floor: int | None = None, phase: Phase = "decode") -> Policy:
    """Keep the experts of the greatest total energy ``(weight * mean output norm) ** 2``; backfill.

    Args:
        size: Active experts, resident ones included.
        top_s: Slots of each row that are active in any case.
        floor: Least number of active experts; None means K.
        phase: ``decode`` or ``all``.

    Source: the static form that BASE (arXiv 2609.36222) compares with; BASE itself predicts the norm.

    """
    return Policy("energy", Budget(size, Energy(), top_s, floor), Backfill(), Renormalise(), phase)
