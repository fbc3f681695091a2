"""Calibration: how alike the experts of every layer are; see ``docs/calibration.md``."""

from sere.calibration.calibrate import calibrate
from sere.calibration.config import CalibrationConfig
from sere.calibration.progress import Progress
from sere.calibration.summary import LayerSummary, summarise
from sere.calibration.texts import load_texts

__all__ = ["CalibrationConfig", "LayerSummary", "Progress", "calibrate", "load_texts", "summarise"]
