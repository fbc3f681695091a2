"""Tuning: from a tolerance to operating points, searched on one half of the texts, confirmed on the other."""

from sere.tuning.accuracy import Accuracy
from sere.tuning.record import PointRecord, TuneRecord
from sere.tuning.run import TARGETS, tune
from sere.tuning.split import Split, most_shares
from sere.tuning.store import operating_points, write
from sere.tuning.tolerance import Tolerance
from sere.tuning.traffic import Traffic

__all__ = [
    "TARGETS",
    "Accuracy",
    "PointRecord",
    "Split",
    "Tolerance",
    "Traffic",
    "TuneRecord",
    "most_shares",
    "operating_points",
    "tune",
    "write",
]
