"""What a decoding step costs on this device, and what policies save of it: ``sere profile``."""

from sere.profiling.config import ProfileConfig
from sere.profiling.fit import Fit, Step, fit
from sere.profiling.record import ProfileRecord
from sere.profiling.run import profile

__all__ = ["Fit", "ProfileConfig", "ProfileRecord", "Step", "fit", "profile"]
