"""lm-evaluation-harness on the unmodified and the re-routed model, side by side.

Nothing of the harness is imported before it is used.
"""

from sere.evaluation.harness.config import EvalConfig
from sere.evaluation.harness.record import EvalRecord
from sere.evaluation.harness.run import run_eval

__all__ = ["EvalConfig", "EvalRecord", "run_eval"]
