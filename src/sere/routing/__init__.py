"""The method: pure functions over tensors, with no engine and no input or output in them."""

from sere.routing.batch import DECODE, PADDING, PREFILL, RouterScores, RoutingBatch
from sere.routing.by_rows import UNCHANGED, ByRows
from sere.routing.counters import FIELDS, count
from sere.routing.guard import NEVER, Guard, GuardLike
from sere.routing.layer import LayerStatistics
from sere.routing.per_layer import PerLayer
from sere.routing.policy import Phase, Policy, Routes
from sere.routing.recipes import RECIPES, make_policy, parse_policy

__all__ = [
    "DECODE",
    "FIELDS",
    "NEVER",
    "PADDING",
    "PREFILL",
    "RECIPES",
    "UNCHANGED",
    "ByRows",
    "Guard",
    "GuardLike",
    "LayerStatistics",
    "PerLayer",
    "Phase",
    "Policy",
    "RouterScores",
    "Routes",
    "RoutingBatch",
    "count",
    "make_policy",
    "parse_policy",
]
