"""One layer closely, in the terminal: heat map in the order of its clusters, and who is in them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sere.artifact import Artifact
from sere.cli.output import console, plain
from sere.inspection import LayerView
from sere.inspection.layer import matrix
from sere.inspection.shades import Shades, shades

MARGIN = 6
MOST = 24
"""Experts of a cluster that are named; the JSON document has all."""


def show(artifact: Artifact, views: Sequence[LayerView]) -> None:
    """Print each layer's heat map and clusters."""
    out = console()
    for view in views:
        drawn = shades(
            matrix(artifact, view.name, view.metric),
            view.clusters.tree.order,
            out.width - MARGIN,
            ascii_only=out.options.ascii_only,
        )
        plain(out, f"Layer {view.index}: {view.metric} similarity, experts in the order of their clusters")
        heads = _heads(view, drawn)
        for head, line in zip(heads, drawn.lines, strict=True):
            plain(out, f"{head:>{MARGIN - 1}} {line}")
        plain(out, _legend(drawn))
        for letter, members in zip(_letters(view), view.clusters.members, strict=True):
            if letter:
                plain(out, f"cluster {letter}: {_names(members)}")
        if view.clusters.alone:
            plain(out, f"alone: {_names([each[0] for each in view.clusters.members if len(each) == 1])}")
        plain(out, "")


def name_critical(views: Sequence[LayerView]) -> None:
    """Name the critical experts of every layer at every threshold."""
    out = console()
    for view in views:
        for each in view.critical:
            names = ", ".join(map(str, each.experts)) or "none"
            plain(out, f"layer {view.index}, critical at {each.threshold:g}: {names}")
    plain(out, "")


def _heads(view: LayerView, drawn: Shades) -> list[str]:
    """Letter of each line's cluster where it is a shared one and differs from the line above."""
    cluster = [
        letter for letter, members in zip(_letters(view), view.clusters.members, strict=True) for _ in members
    ]
    found = [cluster[start] for start in drawn.starts]
    return [each if place == 0 or each != found[place - 1] else "" for place, each in enumerate(found)]


def _legend(drawn: Shades) -> str:
    if not drawn.cuts:
        return "There is one expert and no pair."
    if drawn.cuts[0] == drawn.cuts[-1]:
        return f"All cells are {drawn.cuts[0]:.3f}."
    steps = "  ".join(f"'{mark}' from {cut:.3f}" for mark, cut in zip(drawn.marks, drawn.cuts, strict=True))
    cell = "" if drawn.down == 1 else f" A cell is {drawn.down} x {drawn.across} experts."
    return f"{steps}.{cell}"


def _letters(view: LayerView) -> list[str]:
    """Name each cluster; an expert alone has none."""
    names = (chr(ord("A") + number % 26) + str(number // 26 or "") for number in itertools.count())
    return [next(names) if len(members) > 1 else "" for members in view.clusters.members]


def _names(members: Sequence[int]) -> str:
    more = f" and {len(members) - MOST} more" if len(members) > MOST else ""
    return ", ".join(map(str, sorted(members)[:MOST])) + more
