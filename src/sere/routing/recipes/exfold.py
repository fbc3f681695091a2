"""ExFold: what is left out is folded into what stays (arXiv 2608.24938)."""

from __future__ import annotations

from sere.routing.budget import Budget
from sere.routing.folding import FoldGain, FoldOnto
from sere.routing.policy import Phase, Policy
from sere.routing.recipes.knob import budgets, knob
from sere.routing.scores import Energy


@knob("size", budgets)
def exfold(
    size: int = 32,
    ridge: float = 1e-3,
    clip: float = 4.0,
    floor: int | None = None,
    phase: Phase = "decode",
) -> Policy:
    """ExFold's decode budget: most important experts stay, other slots are folded onto the nearest of them.

    ``Budget(D, weight * mean norm) + FoldOnto + FoldGain``, with norms and scalars of routed tokens, which
    ``sere calibrate --routed-moments`` sums. An expert that no token was routed to has the median norm.

    Args:
        size: D, active experts; 64 and 32 of 128 in the paper.
        ridge: lambda of the regression.
        clip: Greatest absolute scalar.
        floor: Least number of active experts; None means K, 0 the published rule.
        phase: ``decode``, as published for its budget, or ``all``.

    Source: arXiv 2608.24938, the decode half, with what the paper leaves open (ridge, clip, unseen pairs and
    experts) as its published code for Qwen3 has it. Ours: of equal losses the lowest expert id; a row of
    which nothing can be folded keeps its heaviest slot. The prefill half, fewer slots a row, is not here, nor
    the pool of experts that is fixed beforehand for the paper's speed figures.

    """
    return Policy(
        "exfold",
        Budget(size, Energy(1, routed=True), 0, floor),
        FoldOnto(ridge, clip),
        FoldGain(ridge, clip),
        phase,
    )
