"""Measured against predicted: on the line they are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sere.report.blocks import Chart, Table
from sere.report.charts.style import FAINT, HUES, INK, PAPER, figure, svg
from sere.report.finding import Value
from sere.report.form import interval, number


@dataclass(frozen=True)
class Dot:
    """One comparison.

    Attributes:
        name: In words, for the table.
        letter: Mark beside the point; empty for none.
        predicted: What was predicted.
        measured: What was measured, and its range.

    """

    name: str
    letter: str
    predicted: float
    measured: Value


def agreement(dots: Sequence[Dot], name: str, *, title: str, across: str, up: str, digits: int = 2) -> Chart:
    """Draw measured figures over predicted ones.

    Args:
        dots: What to draw.
        name: Makes the picture's ids unique.
        title: What it shows.
        across: Label of the horizontal axis.
        up: Label of the vertical axis.
        digits: Decimals of the figures in the table.

    """
    with figure() as (drawn, axes):
        ends = [*(dot.predicted for dot in dots), *(dot.measured.value for dot in dots)]
        low, high = min(ends), max(ends)
        axes.plot([low, high], [low, high], color=FAINT, linewidth=1.2, linestyle="--")
        for dot in dots:
            value = dot.measured
            axes.plot([dot.predicted] * 2, [value.low, value.high], color=HUES[0], linewidth=1.5)
            axes.plot(dot.predicted, value.value, "o", color=HUES[0], markersize=7, markeredgecolor=PAPER)
            axes.annotate(
                dot.letter,
                (dot.predicted, value.value),
                xytext=(5, 5),
                textcoords="offset points",
                color=INK,
                fontsize=9,
            )
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        rows = [[dot.name, number(dot.predicted, digits), interval(dot.measured, digits)] for dot in dots]
        words = f"{title}, {across} and {up}: " + "; ".join(
            f"{words} {predicted} and {measured}" for words, predicted, measured in rows
        )
        picture = svg(drawn, name, f"{words}.")
    caption = f"{title}. On the line, prediction and measurement are the same; bars are the range."
    return Chart(picture, f"{words}.", caption, Table(title, ["", across, up], rows, code=True))
