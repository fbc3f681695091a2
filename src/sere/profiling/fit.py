"""From measured steps to coefficients: non-negative least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from sere.errors import DataError, MissingError


@dataclass(frozen=True)
class Step:
    """Measured decoding steps of one shape.

    Attributes:
        rows: Rows of the step.
        experts: Distinct experts read per MoE layer.
        seconds: Time of a step, the median.
        low: First quartile of the times.
        high: Third quartile.

    """

    rows: int
    experts: int
    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """Coefficients, none of them negative.

    Attributes:
        fixed: Seconds of a step, whatever is in it.
        byte: Seconds for each byte of experts read.
        row: Seconds for each row.
        errors: Of each step, ``predicted / measured - 1``.

    """

    fixed: float
    byte: float
    row: float
    errors: tuple[float, ...]

    @property
    def error(self) -> float:
        """Median size of the errors."""
        return median(abs(error) for error in self.errors)


def fit(steps: Sequence[Step], expert_bytes: int) -> Fit:
    """Fit ``seconds = fixed + byte x expert_bytes x experts + row x rows``.

    Every step weighs by its relative error, so that large steps do not drown small ones. No coefficient
    can be negative: none of the three can make a step faster.

    Args:
        steps: Measured steps of at least two numbers of rows and, at one of these, two of experts.
        expert_bytes: Bytes of one expert's weights, summed over the MoE layers.

    Raises:
        DataError: If the steps cannot tell the three apart, or a time is not positive.
        MissingError: If SciPy is not installed.

    """
    try:
        from scipy.optimize import nnls
    except ImportError as error:
        raise MissingError("this needs SciPy. Run: pip install 'sere-moe[hf,profile]'.") from error
    seconds = np.array([step.seconds for step in steps], dtype=np.float64)
    if not (np.isfinite(seconds) & (seconds > 0)).all():
        raise DataError("a measured step took no time. Measure more steps (--rounds).")
    design = np.array([[1.0, step.experts, step.rows] for step in steps], dtype=np.float64).reshape(-1, 3)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise DataError(
            "these steps cannot tell fixed cost, experts and rows apart. Measure at least two batch sizes, "
            "and several numbers of experts at one of them."
        )
    # Columns of one size: bytes and seconds lie twenty orders of magnitude apart.
    scale = design.max(0)
    solution, _ = nnls(design / scale / seconds[:, None], np.ones(len(steps)))
    fixed, expert, row = solution / scale
    errors = (design @ np.array([fixed, expert, row])) / seconds - 1
    return Fit(float(fixed), float(expert) / expert_bytes, float(row), tuple(map(float, errors)))
