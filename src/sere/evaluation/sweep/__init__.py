"""The sweep: every recipe over its own knob, on the same work, at the same number of distinct experts."""

from sere.evaluation.sweep.cache import PointCache
from sere.evaluation.sweep.config import SweepConfig
from sere.evaluation.sweep.evaluator import Evaluator
from sere.evaluation.sweep.point import Point, Sample
from sere.evaluation.sweep.record import SweepRecord
from sere.evaluation.sweep.run import sweep
from sere.evaluation.sweep.series import Series, chosen

__all__ = [
    "Evaluator",
    "Point",
    "PointCache",
    "Sample",
    "Series",
    "SweepConfig",
    "SweepRecord",
    "chosen",
    "sweep",
]
