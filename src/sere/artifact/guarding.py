"""From a cost model to a guard: the steps that re-routing would make slower stay as routed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby

from sere.artifact.cost import CostModel, Place, PolicyCost, saving
from sere.routing import NEVER, Guard, Policy


def predicted_guard(
    costs: Iterable[CostModel], policy: Policy, metric: str | None, place: Place
) -> Guard | None:
    """Return the guard of ``policy`` on a device; None if it was not measured there.

    Args:
        costs: Cost models of an artifact.
        policy: The policy.
        metric: Similarity that is served; None means the artifact's default.
        place: The device.

    """
    for cost in costs:
        measured = cost.find(policy, metric) if cost.place == place else None
        if measured is not None:
            return guard_of(cost, measured)
    return None


def guard_of(cost: CostModel, policy: PolicyCost) -> Guard:
    """Guard the steps whose predicted saving is not above the policy's overhead.

    The answer is settled here for every number of rows, so nothing is computed or waited for in a step.
    Past the largest measured size the saving is taken to stay as it is and the overhead to grow with
    the rows.
    """
    last = policy.sizes[-1].rows
    paying = [rows for rows in range(1, last + 1) if saving(cost, policy, rows) > 0]
    if not paying:
        return Guard(NEVER)
    least, most = paying[0], _most(cost, policy) if paying[-1] == last else paying[-1]
    kept = sorted(set(range(least, paying[-1])) - set(paying))
    runs = groupby(enumerate(kept), key=lambda pair: pair[1] - pair[0])
    gaps = [[rows for _, rows in run] for _, run in runs]
    return Guard(least, most, tuple((gap[0], gap[-1]) for gap in gaps))


def _most(cost: CostModel, policy: PolicyCost) -> int | None:
    """Most rows for which it pays, given that it does at the largest measured size; None for no limit."""
    size = policy.sizes[-1]
    if size.overhead == 0:
        return None
    ratio = cost.expert * (size.before - size.after) / size.overhead
    return max(size.rows, math.ceil(ratio * size.rows) - 1)
