"""BASE: the experts stay whose removal is predicted to cost this batch most (arXiv 2609.36222)."""

from __future__ import annotations

from sere.routing.backfill import Backfill
from sere.routing.budget import Budget
from sere.routing.policy import Phase, Policy
from sere.routing.predicted import PredictedEnergy
from sere.routing.recipes.knob import budgets, knob
from sere.routing.weigh import Renormalise


@knob("size", budgets)
def base(size: int = 16, floor: int | None = None, phase: Phase = "decode") -> Policy:
    """Keep the experts whose removal is predicted to cost most: ``Budget + Backfill + Renormalise`` (BASE).

    The removal error of an expert is ``sum over rows of w^2 |E_u(x)|^2``, with ``log |E_u(x)|`` a linear
    function of the layer's input x, which ``sere calibrate --norm-predictor`` fits.

    Args:
        size: M, active experts; 16 and 10 of 128 in the paper at batch 16.
        floor: Least number of active experts; None means K, 0 the published rule.
        phase: ``decode``, as published, or ``all``.

    Source: arXiv 2609.36222 through summaries: score, linear log-norm and backfill are theirs. Ours, where
    these say nothing: the regression is over the tokens routed to the expert, with a ridge
    (:func:`sere.calibration.norm_predictor.fit`); backfilled rows are renormalised; of equal scores the
    lowest expert id stays.

    """
    return Policy("base", Budget(size, PredictedEnergy(), 0, floor), Backfill(), Renormalise(), phase)
