"""Controls: nothing changed, plain truncation, and other substitutes than the most similar one."""

from __future__ import annotations

from sere.routing.fill import Drop
from sere.routing.policy import Phase, Policy
from sere.routing.recipes.knob import knob, slots
from sere.routing.select import Everything, PerRow, UnionTopS
from sere.routing.substitutes import LeastSimilar, Random
from sere.routing.weigh import Keep, Renormalise


def none() -> Policy:
    """Keep every slot: the routing passes through the whole path and comes out bit for bit."""
    return Policy("none", Everything(), Drop(), Keep())


@knob("k", slots)
def top_k(k: int = 2, renormalise: bool = True, phase: Phase = "decode") -> Policy:
    """Plain truncation: every row keeps its ``k`` heaviest experts, the mandatory baseline.

    Args:
        k: Experts kept a row.
        renormalise: Scale the kept weights to the row's old sum; otherwise leave them.
        phase: ``decode`` or ``all``.

    """
    return Policy("top_k", PerRow(k), Drop(), Renormalise() if renormalise else Keep(), phase)


@knob("top_s", slots)
def least_similar(top_s: int = 2, floor: int | None = None, phase: Phase = "decode") -> Policy:
    """SERE with the worst substitute: what similarity is worth.

    Args:
        top_s: As in ``sere``.
        floor: As in ``sere``.
        phase: As in ``sere``.

    """
    return Policy("least_similar", UnionTopS(top_s, floor), LeastSimilar(), Keep(), phase)


@knob("top_s", slots)
def random(top_s: int = 2, seed: int = 0, floor: int | None = None, phase: Phase = "decode") -> Policy:
    """SERE with a drawn substitute; take several seeds.

    Args:
        top_s: As in ``sere``.
        seed: Seed of the draw, the same for all layers and steps.
        floor: As in ``sere``.
        phase: As in ``sere``.

    """
    return Policy("random", UnionTopS(top_s, floor), Random(seed), Keep(), phase)
