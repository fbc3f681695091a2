"""One figure and its interval for each policy, on one line each."""

from __future__ import annotations

from collections.abc import Sequence

from sere.report.blocks import Chart, Table
from sere.report.charts.style import FAINT, HUES, PAPER, WIDTH, figure, svg
from sere.report.finding import Value
from sere.report.form import interval

LINE = 0.32
"""Inches of a line."""


def dots(
    rows: Sequence[tuple[str, str, Value]], name: str, *, title: str, across: str, at: float = 1.0
) -> Chart:
    """Draw values from top to bottom, with a line at ``at``.

    Args:
        rows: Name, label in the picture, and value.
        name: Makes the picture's ids unique.
        title: What it shows.
        across: Label of the axis.
        at: Where nothing is gained.

    """
    with figure(WIDTH, 0.9 + LINE * len(rows)) as (drawn, axes):
        axes.axvline(at, color=FAINT, linewidth=1.2, linestyle="--")
        for line, (_, _, value) in enumerate(rows):
            hue = HUES[0] if value.low > at else HUES[1]
            axes.plot([value.low, value.high], [line, line], color=hue, linewidth=2.5)
            axes.plot(value.value, line, "o", color=hue, markersize=8, markeredgecolor=PAPER)
        axes.set_yticks(range(len(rows)), [label for _, label, _ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(False, axis="y")
        axes.set_xlabel(across)
        words = f"{title}: " + "; ".join(f"{words} {interval(value, 2)}" for words, _, value in rows) + "."
        picture = svg(drawn, name, words)
    table = Table(
        title, ["policy", across], [[words, interval(value, 2)] for words, _, value in rows], code=True
    )
    return Chart(picture, words, f"{title}. The line is the unmodified model; bars are the range.", table)
