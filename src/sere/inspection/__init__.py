"""What an artifact says of a model's experts, and whether another calibration says the same."""

from sere.inspection.against import LayerAgainst, check_same_model, compare
from sere.inspection.agreement import Agreement, Choice
from sere.inspection.clusters import Clusters
from sere.inspection.critical import THRESHOLDS, Critical
from sere.inspection.layer import LayerView, inspect
from sere.inspection.spread import Spread

__all__ = [
    "THRESHOLDS",
    "Agreement",
    "Choice",
    "Clusters",
    "Critical",
    "LayerAgainst",
    "LayerView",
    "Spread",
    "check_same_model",
    "compare",
    "inspect",
]
