"""What won: a tolerated loss of energy, the rows' own next best experts, fitted weights."""

from __future__ import annotations

from sere.routing.backfill import Backfill
from sere.routing.budget import Tolerance
from sere.routing.policy import Phase, Policy
from sere.routing.recipes.knob import knob
from sere.routing.refit import Refit
from sere.routing.scores import Energy


@knob("share", lambda _experts, _top_k: (0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01))
def refit(
    share: float = 0.05, top_s: int = 1, ridge: float = 1.0, floor: int | None = None, phase: Phase = "decode"
) -> Policy:
    """Ours: experts go while the rows lose at most a share of their energy; rows backfill and are refitted.

    Selection as in ``tolerance``, with each row's best slot always kept; open slots take the row's next
    best active experts; new weights are least squares under the calibrated second moments, pulled towards
    the router's own.

    Args:
        share: Tolerated share of all rows' energy, in [0, 1].
        top_s: Slots of each row whose experts are never dropped.
        ridge: How strongly weights are pulled towards the router's, relative to the moments.
        floor: Least number of active experts; None means K.
        phase: ``decode`` or ``all``.

    """
    return Policy(
        "refit", Tolerance(share, Energy(), top_s, floor), Backfill(), Refit(ridge, "router"), phase
    )
