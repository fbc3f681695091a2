"""A figure at several request rates, one line a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sere.report.blocks import Chart, Table
from sere.report.charts.layers import LINES, MARKS
from sere.report.charts.style import HUES, PAPER, figure, svg
from sere.report.finding import Value
from sere.report.form import interval

ROOM = 1.08
"""Height of the axis over the greatest value."""
APART = 0.06
"""Steps of the axis between the bars of two policies, so that none hides another."""


def by_rate(
    lines: Mapping[str, Sequence[Value | None]],
    rates: Sequence[str],
    name: str,
    *,
    title: str,
    up: str,
    better: str,
    letters: Mapping[str, str],
    digits: int = 1,
) -> Chart:
    """Draw one line for each entry of ``lines``, with the range over repetitions as bars.

    Args:
        lines: Name to one value a rate; None where nothing was measured.
        rates: The rates as text, evenly spaced on the axis.
        name: Makes the picture's ids unique.
        title: What it shows.
        up: Label of the vertical axis.
        better: Where better is: ``up`` or ``down``.
        letters: Short names for the legend.
        digits: Digits of a value in the words and the table.

    """
    with figure() as (drawn, axes):
        for place, (line, values) in enumerate(lines.items()):
            known = [(at, value) for at, value in enumerate(values) if value is not None]
            axes.errorbar(
                [at + APART * (place - (len(lines) - 1) / 2) for at, _ in known],
                [value.value for _, value in known],
                yerr=[
                    [value.value - value.low for _, value in known],
                    [value.high - value.value for _, value in known],
                ],
                color=HUES[place % len(HUES)],
                linestyle=LINES[place // len(HUES) % len(LINES)],
                marker=MARKS[place % len(MARKS)],
                markeredgecolor=PAPER,
                elinewidth=1,
                capsize=2,
                label=letters.get(line, line),
            )
        axes.set_xticks(range(len(rates)), rates)
        axes.set_xlim(-0.4, len(rates) - 0.6)
        top = max((value.high for values in lines.values() for value in values if value), default=1.0)
        axes.set_ylim(0, (top or 1.0) * ROOM)
        axes.set_xlabel("requests a second")
        axes.set_ylabel(up)
        drawn.legend(loc="outside upper left", ncols=4, fontsize=9)
        words = _words(lines, rates, title, digits)
        picture = svg(drawn, name, words)
    rows = [
        [rate, *(interval(values[at], digits) for values in lines.values())] for at, rate in enumerate(rates)
    ]
    return Chart(
        picture,
        words,
        f"{title}; better is {better}. Bars are the range over repetitions.",
        Table(title, ["requests a second", *lines], rows),
    )


def _words(lines: Mapping[str, Sequence[Value | None]], rates: Sequence[str], title: str, digits: int) -> str:
    said = (
        f"{line} "
        + ", ".join(
            f"{interval(value, digits)} at {rate}"
            for rate, value in zip(rates, values, strict=True)
            if value is not None
        )
        for line, values in lines.items()
    )
    return f"{title}: {'; '.join(said)}."
