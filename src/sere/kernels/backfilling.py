"""The second family, select-then-backfill: which policies are of it, their parameters, their definition.

Active experts are chosen for the whole step, by :class:`~sere.routing.select.UnionTopS` (OEA, arXiv
2511.02237) or :class:`~sere.routing.budget.Budget` (XShare 2602.07265, MoE-Spec 2602.16052, DES-Vote
2602.00879, Lynx 2411.08982); then each row fills up from them by :class:`~sere.routing.backfill.Backfill`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sere.errors import PolicyError
from sere.routing import LayerStatistics, Policy, RouterScores, RoutingBatch, count
from sere.routing.backfill import Backfill
from sere.routing.budget import Budget
from sere.routing.scores import RouterMass, Score
from sere.routing.select import Select, UnionTopS
from sere.routing.weigh import Keep, Renormalise


@dataclass(frozen=True)
class BackfillOptions:
    """Parameters.

    Attributes:
        top_s: Each row's heaviest slots whose experts are active in any case; 0, with a size, for none.
        floor: Least number of active experts; None means K, 0 none.
        size: Active experts in all, filled up by falling total; 0 for the union of top-S alone.
        renormalise: Whether changed rows are scaled to the sum that they had.
        everyone: Whether prefill rows are re-routed too (phase ``all``).
        redirect_padding: Whether padding rows are pointed at the lowest expert that the step loads.

    Raises:
        PolicyError: If a number is below 0, or nothing would be active.

    """

    top_s: int = 1
    floor: int | None = None
    size: int = 0
    renormalise: bool = True
    everyone: bool = False
    redirect_padding: bool = True

    def __post_init__(self) -> None:
        if self.top_s < 0 or self.size < 0 or (self.floor or 0) < 0:
            raise PolicyError("top_s, size and floor must be 0 or more.")
        if self.top_s == 0 and self.size == 0:
            raise PolicyError("nothing would be active. Set top_s or size.")

    @classmethod
    def of(cls, policy: Policy, redirect_padding: bool = True) -> BackfillOptions:
        """Read the parameters off a policy.

        Raises:
            PolicyError: If it is not of this family; :func:`obstacle` says why.

        """
        reason, select = obstacle(policy), policy.select
        if reason is not None or not isinstance(select, UnionTopS | Budget):
            raise PolicyError(f"{policy.name}: {reason}. Call policy.route instead.")
        size = select.size if isinstance(select, Budget) else 0
        renormalise, everyone = isinstance(policy.weigh, Renormalise), policy.phase == "all"
        return cls(select.top_s, select.floor, size, renormalise, everyone, redirect_padding)

    def resolved(self, top_k: int) -> tuple[int, int, int, bool]:
        """S, floor, size and redirect in a layer with ``top_k`` slots.

        A setting that can change nothing (:meth:`sere.routing.Policy.inert`) becomes ``S = K`` with the
        rest off. The floor is one of the union, for which S grows; with a size, it is one of the size.
        """
        if self.top_s >= top_k:
            return top_k, 0, 0, False
        floor = top_k if self.floor is None else self.floor
        if self.size:
            return self.top_s, 0, max(self.size, floor), self.redirect_padding
        return self.top_s, floor, 0, self.redirect_padding


def obstacle(policy: Policy) -> str | None:
    """Say why ``policy`` is not of this family, or None."""
    parts = type(policy.select), type(policy.fill), type(policy.weigh)
    if parts[0] in (UnionTopS, Budget) and parts[1] is Backfill and parts[2] in (Keep, Renormalise):
        return "backfilled slots are not merged" if policy.merge else None
    return f"{' + '.join(part.__name__ for part in parts)} does not select and then backfill"


@dataclass(frozen=True, eq=False)
class Given(Score):
    """Totals that were computed before.

    Attributes:
        total: Shape [E], float32.

    """

    total: Tensor

    def experts(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Return them."""
        return self.total


def policy_of(options: BackfillOptions, total: Tensor | None) -> Policy:
    """Build the policy whose parameters these are; ``total`` as in :func:`definition`."""
    select: Select
    if options.size:
        score = RouterMass() if total is None else Given(total)
        select = Budget(options.size, score, options.top_s, options.floor)
    else:
        select = UnionTopS(options.top_s, options.floor)
    weigh = Renormalise() if options.renormalise else Keep()
    return Policy("backfill", select, Backfill(), weigh, "all" if options.everyone else "decode")


def definition(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    scores: RouterScores,
    total: Tensor | None,
    options: BackfillOptions,
) -> tuple[Tensor, Tensor, Tensor]:
    """Re-route by :meth:`sere.routing.Policy.route` and count by :func:`sere.routing.count`.

    Args:
        ids: Experts, shape [T, K], int32 or int64.
        weights: Weights, shape [T, K], floating.
        kinds: Row kinds, shape [T], or None for decode rows only.
        scores: The router's scores of all experts, both of shape [T, E], floating, judged in float32.
        total: What a size is filled up by, shape [E], float32, greater first, only what is above 0; None
            takes the sum of the voting rows' scores (:class:`~sere.routing.scores.RouterMass`).
        options: The parameters.

    Returns:
        Ids, weights and counters, as :func:`sere.kernels.definition.reroute`.

    """
    batch = RoutingBatch(ids, weights, scores.order.shape[1], kinds, scores)
    policy = policy_of(options, total)
    routes = policy.route(batch, LayerStatistics(), redirect_padding=options.redirect_padding)
    return routes.ids, routes.weights, count(batch, routes)
