"""Figures as text, everywhere on the page alike."""

from __future__ import annotations

import math
from pathlib import Path

from sere.report.finding import Value

MISSING = "–"  # noqa: RUF001 - an en dash stands for an empty cell
FINE = 0.1
"""KL below this is given to three digits."""


def number(value: float | None, digits: int = 1) -> str:
    """Write a figure; a dash where there is none."""
    return MISSING if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 1, sign: bool = False) -> str:
    """Write a share as per cent."""
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:{'+' if sign else ''}.{digits}%}"


def interval(value: Value | None, digits: int = 3, share: bool = False, sign: bool = False) -> str:
    """Write a figure and its interval."""
    if value is None:
        return MISSING

    def write(figure: float) -> str:
        return percent(figure, digits, sign) if share else number(figure, digits)

    middle = write(value.value)
    return f"{middle} ({write(value.low)} to {write(value.high)})" if value.spread else middle


def speedup(value: Value | None) -> str:
    """Write a ratio of speeds and its spread."""
    if value is None:
        return MISSING
    middle = f"{value.value:.2f}×"  # noqa: RUF001 - the sign of multiplication
    return f"{middle} ({value.low:.2f} to {value.high:.2f})" if value.spread else middle


def duration(seconds: float) -> str:
    """Write seconds as a reader would say them."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def called(model: str) -> str:
    """Return a model's name: the Hub's, or the last part of a folder's path."""
    return Path(model).name or model if model.startswith(("/", ".", "~", "\\")) else model


def plural(count: int, word: str) -> str:
    """Write a count with its word."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
