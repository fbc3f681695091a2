"""A heat map in characters: five shades in equal steps of similarity, so that it reads without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BLOCKS = " ░▒▓█"
LETTERS = " .:*#"
"""The same where the terminal has no such characters."""
BARS = " ▁▂▃▄▅▆▇█"
LETTER_BARS = " .,-=+*%#"
DIAGONAL = "\\"
ENDS = (0.02, 0.98)
"""Shares of the cells between whose values the steps lie; a few odd cells shall not take all shades."""


@dataclass(frozen=True)
class Shades:
    """A drawn map.

    Attributes:
        lines: Rows of characters; a cell is as wide as it is high on most terminals.
        across: Experts of a column of cells.
        down: Experts of a row of cells.
        starts: For each line, the place in the order of its first expert.
        cuts: Least values of the five shades; the first is the least of all. Empty without a pair.
        marks: The characters of the five shades.

    """

    lines: tuple[str, ...]
    across: int
    down: int
    starts: tuple[int, ...]
    cuts: tuple[float, ...]
    marks: str


def shades(similarity: Floats, order: Sequence[int], width: int, *, ascii_only: bool = False) -> Shades:
    """Draw a layer's similarities.

    Experts that do not fit are binned: a cell shows the mean of its pairs of different experts.

    Args:
        similarity: Shape [E, E].
        order: All experts, in the order to draw them in.
        width: Characters that a line may have, at least 2.
        ascii_only: Draw with letters.

    """
    experts = len(order)
    double = 2 * experts <= width
    across = 1 if double else math.ceil(experts / max(2, width))
    down = 1 if double else 2 * across
    cells = binned(similarity[np.ix_(order, order)], down, across)
    shown = cells[~np.isnan(cells)]
    cuts = _cuts(shown) if shown.size else shown
    uneven = shown.size and cuts[0] < cuts[-1]
    levels = np.searchsorted(cuts[1:], cells, side="right") if uneven else np.full(cells.shape, 2)
    marks = LETTERS if ascii_only else BLOCKS
    lines = tuple(
        "".join(
            (DIAGONAL if math.isnan(value) else marks[level]) * (2 if double else 1)
            for value, level in zip(values, row, strict=True)
        )
        for values, row in zip(cells.tolist(), levels.tolist(), strict=True)
    )
    starts = tuple(range(0, experts, down))
    return Shades(lines, across, down, starts, tuple(map(float, cuts)), marks)


def _cuts(shown: Floats) -> Floats:
    low, high = np.quantile(shown, ENDS)
    return np.append(shown.min(), np.linspace(low, high, len(BLOCKS) + 1)[1:-1])


def binned(matrix: Floats, down: int, across: int) -> Floats:
    """Average blocks of ``down`` rows and ``across`` columns without the diagonal; NaN where nothing is left.

    Args:
        matrix: Shape [E, E].
        down: Rows of a block; the last block may have fewer.
        across: Columns of a block.

    """
    count = (~np.eye(len(matrix), dtype=bool)).astype(np.float64)
    rows, columns = np.arange(0, len(matrix), down), np.arange(0, len(matrix), across)
    sums, counts = (
        np.add.reduceat(np.add.reduceat(each, rows, axis=0), columns, axis=1)
        for each in (matrix * count, count)
    )
    out: Floats = np.full(sums.shape, np.nan)
    np.divide(sums, counts, out=out, where=counts > 0)
    return out


def bars(counts: Sequence[int], *, ascii_only: bool = False) -> str:
    """Draw a histogram in one line, a character a bin; only an empty bin is blank."""
    marks = LETTER_BARS if ascii_only else BARS
    most = max(counts, default=0)
    return "".join(
        marks[math.ceil(count / most * (len(marks) - 1))] if count else marks[0] for count in counts
    )
