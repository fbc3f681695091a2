"""Recipes whose strength differs from layer to layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sere.errors import PolicyError
from sere.routing.fill import Drop
from sere.routing.per_layer import PerLayer
from sere.routing.per_row import TailMass
from sere.routing.policy import Phase, Policy
from sere.routing.recipes.knob import knob, slots
from sere.routing.select import PerRow, Select
from sere.routing.weigh import Renormalise

MOST = 0.999
"""Greatest share of a row's weight that AdapMoE may drop; its heaviest slot stays in any case."""


@knob("tolerance", lambda _experts, _top_k: (0.5, 0.35, 0.25, 0.16, 0.09, 0.04, 0.01, 0.0025))
def adapmoe(tolerance: float = 0.04, sensitivity: str | float = 1.0, phase: Phase = "decode") -> Policy:
    """AdapMoE's gating: rows drop their lightest slots, the fewer the more a layer's error costs.

    Dropping a share of a row's weight changes the layer's output in proportion, and the loss by the square
    of it times the layer's sensitivity F. So a row of layer l drops its lightest slots while they hold at
    most ``beta_l = sqrt(tolerance / F_l)`` of its weight; the rest is renormalised. With one F for all layers
    it is ``naee`` with ``beta = sqrt(tolerance / F)``. The paper has two slots a row; more are as in NAEE.

    Args:
        tolerance: T, tolerated loss, at least 0, on the scale of the sensitivities.
        sensitivity: F, greater than 0: one number, or one for each decoder layer from 0, ``1+0.5+0.25``;
            layers past the last number stay as routed. The paper takes the Fisher information of the
            layer's output.
        phase: ``decode`` or ``all``, as published.

    Source: arXiv 2408.10284.

    """
    values = per_layer_numbers("sensitivity", sensitivity)
    if not tolerance >= 0 or not math.isfinite(tolerance):
        raise PolicyError(f"tolerance must be 0 or more, got {tolerance}.")
    if not all(0 < value < math.inf for value in values):
        raise PolicyError(f"sensitivity must be greater than 0 in every layer, got {sensitivity}.")
    betas = [min(math.sqrt(tolerance / value), MOST) for value in values]
    return _by_layer("adapmoe", [TailMass(beta) for beta in betas], phase)


@knob("k", slots)
def lexi(k: str | int = 4, phase: Phase = "decode") -> Policy:
    """LExI: each layer keeps its own number of slots a row, renormalised.

    Which numbers is decided beforehand: :func:`sere.evaluation.allocation.allocate` spreads a total over
    the layers so that the sum of what :func:`sere.evaluation.allocation.top_k_losses` measured is least. The
    paper searches by evolution; the problem has an exact solution by dynamic programming.

    Args:
        k: One number, which is plain top-k, or one for each decoder layer from 0, ``4+2+3``; layers past
            the last number stay as routed.
        phase: ``decode`` or ``all``, as published.

    Source: arXiv 2509.02753.

    """
    values = per_layer_numbers("k", k)
    if not all(value == int(value) for value in values):
        raise PolicyError(f"k must be whole numbers, got {k}.")
    return _by_layer("lexi", [PerRow(int(value)) for value in values], phase)


def per_layer_numbers(name: str, given: str | float) -> list[float]:
    """Read one number, or several joined by ``+``.

    Raises:
        PolicyError: If it is neither.

    """
    try:
        return [float(part) for part in str(given).split("+")]
    except ValueError as error:
        raise PolicyError(f"{name} cannot be {given!r}. Write a number, or one a layer: 1+0.5+2.") from error


def _by_layer(name: str, selects: Sequence[Select], phase: Phase) -> Policy:
    policies = [Policy(name, select, Drop(), Renormalise(), phase) for select in selects]
    return policies[0] if len(policies) == 1 else PerLayer.of(enumerate(policies), name=name)
