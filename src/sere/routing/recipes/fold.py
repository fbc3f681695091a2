"""Recipes that correct weights by calibrated second moments."""

from __future__ import annotations

from sere.routing.backfill import Backfill
from sere.routing.budget import Budget, Tolerance
from sere.routing.fill import Drop, Fill
from sere.routing.fold import MinLoss
from sere.routing.policy import Phase, Policy
from sere.routing.recipes.knob import budgets, knob
from sere.routing.refit import Project, Refit
from sere.routing.scores import Energy


@knob("size", budgets)
def fold(size: int = 32, ridge: float = 1e-3, floor: int | None = None, phase: Phase = "decode") -> Policy:
    """``exfold`` from moments over all tokens, which every calibration has.

    Most important experts stay, by weight times mean norm; other slots are projected onto the nearest of
    them. ExFold itself, ``exfold``, calibrates on co-routed pairs weighted by norm.

    Args:
        size: D, active experts.
        ridge: Relative ridge of the projection.
        floor: Least number of active experts; None means K.
        phase: ``decode`` or ``all``.

    Source: arXiv 2608.24938.

    """
    return Policy("fold", Budget(size, Energy(1), 0, floor), MinLoss(), Project(ridge), phase)


@knob(
    "share", lambda _experts, _top_k: (0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002)
)
def tolerance(
    share: float = 0.05,
    top_s: int = 0,
    backfill: bool = False,
    ridge: float = 1e-2,
    floor: int | None = None,
    phase: Phase = "decode",
) -> Policy:
    """Ours: drop experts while the rows lose at most a share of their energy; refit what is left.

    A row's energy is the sum of ``(weight * mean output norm) ** 2`` over its slots, scaled to 1; the new
    weights are the least-squares ones under the calibrated second moments.

    Args:
        share: Tolerated share of all rows' energy, in [0, 1].
        top_s: Slots of each row whose experts are never dropped.
        backfill: Rows take their router's next best active experts for what they lost, which needs
            the router's scores; otherwise those slots are dropped.
        ridge: Relative ridge of the refit.
        floor: Least number of active experts; None means K.
        phase: ``decode`` or ``all``.

    """
    fill: Fill = Backfill() if backfill else Drop()
    return Policy("tolerance", Tolerance(share, Energy(), top_s, floor), fill, Refit(ridge), phase)
