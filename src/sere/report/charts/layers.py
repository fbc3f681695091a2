"""A figure for each layer, one line a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sere.report.blocks import Chart, Table
from sere.report.charts.style import HUES, PAPER, figure, svg
from sere.report.form import number

MARKS = "osD^vPX*"
LINES = ("-", "--", "-.", ":")


def by_layer(
    lines: Mapping[str, Sequence[float]],
    layers: Sequence[str],
    name: str,
    *,
    title: str,
    up: str,
    letters: Mapping[str, str] | None = None,
    digits: int = 1,
) -> Chart:
    """Draw one line for each entry of ``lines``.

    Args:
        lines: Name to one value a layer.
        layers: The layers' names on the axis.
        name: Makes the picture's ids unique.
        title: What it shows.
        up: Label of the vertical axis.
        letters: Short names for the legend.
        digits: Digits of a value in the table.

    """
    with figure() as (drawn, axes):
        for place, (line, values) in enumerate(lines.items()):
            axes.plot(
                range(len(values)),
                values,
                color=HUES[place % len(HUES)],
                linestyle=LINES[place // len(HUES) % len(LINES)],
                marker=MARKS[place % len(MARKS)] if len(layers) < 33 else None,
                markeredgecolor=PAPER,
                label=(letters or {}).get(line, line),
            )
        every = max(1, len(layers) // 12)
        axes.set_xticks(range(0, len(layers), every), layers[::every])
        axes.set_xlabel("layer")
        axes.set_ylabel(up)
        axes.set_ylim(bottom=min(0, *(min(values) for values in lines.values())))
        drawn.legend(loc="outside upper left", ncols=4, fontsize=9)
        words = f"{title}: " + "; ".join(
            f"{line} {number(min(values), digits)} to {number(max(values), digits)}"
            for line, values in lines.items()
        )
        picture = svg(drawn, name, words + ".")
    columns = ["layer", *lines]
    rows = [
        [layer, *(number(values[place], digits) for values in lines.values())]
        for place, layer in enumerate(layers)
    ]
    return Chart(picture, words + ".", f"{title}.", Table(title, columns, rows))
