"""Quality against what it costs: the further up and left, the better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sere.report.blocks import Chart, Table
from sere.report.charts.style import FAINT, HEIGHT, HUES, INK, PAPER, figure, svg
from sere.report.finding import Value
from sere.report.form import interval, number

MARKS = "osD^vPX*"
_CYCLE = len(MARKS)
NEAR = (18, 9)
"""Pixels between two letters, across and up."""
COLUMNS, LONG, LEGEND = 3, 11, 0.19
"""Columns of the legend, letters of a name that fits into one, inches of a line."""
MOST_NAMED = 12
"""Points that carry their letters; more would lie on each other."""


@dataclass(frozen=True)
class Spot:
    """A point of the picture.

    Attributes:
        name: In words, for the table.
        letter: Mark beside the point; empty for none.
        group: Points of one group look alike.
        across: Position, and its interval if it has one.
        up: Height, and its interval if it has one.

    """

    name: str
    letter: str
    group: str
    across: Value
    up: Value


def front(spots: Sequence[Spot], more_is_better: bool, least_across: bool = True) -> list[Spot]:
    """Return the spots that no other one beats in both directions, by position."""

    def beats(other: Spot, spot: Spot) -> bool:
        a = (
            (other.across.value, spot.across.value)
            if least_across
            else (-other.across.value, -spot.across.value)
        )
        b = (other.up.value, spot.up.value) if more_is_better else (-other.up.value, -spot.up.value)
        return a[0] <= a[1] and b[0] >= b[1] and (a[0] < a[1] or b[0] > b[1])

    kept = [spot for spot in spots if not any(beats(other, spot) for other in spots)]
    return sorted(kept, key=lambda spot: spot.across.value)


def pareto(
    spots: Sequence[Spot],
    name: str,
    *,
    title: str,
    across: str,
    up: str,
    more_is_better: bool,
    least_across: bool = True,
    share: bool = False,
    logarithmic: bool = False,
    groups: Sequence[str] = (),
) -> Chart:
    """Draw spots with their intervals, and a line through those that no other one beats.

    Args:
        spots: What to draw.
        name: Makes the picture's ids unique.
        title: What the caption opens with.
        across: Label of the horizontal axis.
        up: Label of the vertical axis.
        more_is_better: Whether higher is better.
        least_across: Whether further left is better.
        share: Whether heights are shares, shown as per cent.
        logarithmic: Whether the vertical axis is logarithmic.
        groups: Order of the groups, so that each looks the same in several pictures.

    """
    best = front(spots, more_is_better, least_across)
    groups = list(dict.fromkeys([*groups, *(spot.group for spot in spots)]))
    shown = {spot.group for spot in spots}
    columns = COLUMNS if max(map(len, shown)) <= LONG else 1
    with figure(height=HEIGHT + LEGEND * (len(shown) // columns)) as (drawn, axes):
        if logarithmic and all(spot.up.value > 0 for spot in spots):
            _logarithmic(axes)
        axes.plot(
            [spot.across.value for spot in best], [spot.up.value for spot in best], color=FAINT, linewidth=1.2
        )
        for spot in spots:
            place = groups.index(spot.group)
            _spot(axes, spot, HUES[place % len(HUES)], mark_of(place))
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}" if share else f"{value:g}")
        axes.margins(0.12)
        _name(axes, spots if len(spots) <= MOST_NAMED else best)
        if len(shown) > 1:
            drawn.legend(
                *_legend(groups, shown),
                loc="outside upper left",
                ncols=columns,
                fontsize=9,
                handletextpad=0.1,
            )
        direction = "left" if least_across else "right"
        words = (
            f"{title}. {len(spots)} points; not beaten by another: {', '.join(spot.name for spot in best)}."
        )
        picture = svg(drawn, name, words)
    better = "up" if more_is_better else "down"
    caption = f"{title}. Better is {better} and {direction}; the line joins points that no other one beats."
    digits = 1 if share else 3
    rows = [
        [spot.name, number(spot.across.value, 2), interval(spot.up, digits, share=share)] for spot in spots
    ]
    return Chart(picture, words, caption, Table(title, ["policy", across, up], rows, code=True))


def _name(axes: Any, spots: Sequence[Spot]) -> None:
    """Put letters beside spots, but none upon another."""
    taken: list[tuple[float, float]] = []
    for spot in spots:
        x, y = axes.transData.transform((spot.across.value, spot.up.value))
        if any(abs(x - left) < NEAR[0] and abs(y - low) < NEAR[1] for left, low in taken):
            continue
        taken.append((x, y))
        place = (spot.across.value, spot.up.value)
        axes.annotate(spot.letter, place, xytext=(6, 5), textcoords="offset points")


def _logarithmic(axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def mark_of(place: int) -> str:
    """Mark of a group, so that 32 groups differ in mark or in hue."""
    return MARKS[(place + place // _CYCLE) % _CYCLE]


def _spot(axes: Any, spot: Spot, colour: str, mark: str) -> None:
    beside = [[spot.across.value - spot.across.low], [spot.across.high - spot.across.value]]
    above = [[spot.up.value - spot.up.low], [spot.up.high - spot.up.value]]
    axes.errorbar(
        spot.across.value,
        spot.up.value,
        xerr=beside if spot.across.spread else None,
        yerr=above if spot.up.spread else None,
        fmt=mark,
        color=colour,
        ecolor=colour,
        markeredgecolor=PAPER,
        markersize=8,
        elinewidth=1,
        capsize=2,
    )


def _legend(groups: Sequence[str], shown: set[str]) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], linestyle="", marker=mark_of(i), color=HUES[i % len(HUES)], markeredgecolor=INK)
        for i, group in enumerate(groups)
        if group in shown
    ]
    return marks, [group for group in groups if group in shown]
