"""Evaluation: what a policy costs in fidelity and accuracy, beside what it saves.

:func:`compare` is the whole of it; the other modules hold its parts.
"""

from sere.evaluation.compare import compare
from sere.evaluation.config import CompareConfig
from sere.evaluation.record import ComparisonRecord, PolicyResult

__all__ = ["CompareConfig", "ComparisonRecord", "PolicyResult", "compare"]
