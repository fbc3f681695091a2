"""Side-by-side decode speed at a real size."""

from sere.bench.real_size import RealSizeConfig, RealSizeRecord, run_real_size
from sere.bench.threads import fastest, pinned
from sere.evaluation.speed import Speed, measure

__all__ = ["RealSizeConfig", "RealSizeRecord", "Speed", "fastest", "measure", "pinned", "run_real_size"]
