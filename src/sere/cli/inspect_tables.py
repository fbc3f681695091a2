"""Tables and sentences of ``sere inspect`` about one artifact, for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich import box
from rich.table import Table

from sere.artifact import PREDICTOR, Artifact
from sere.cli.output import console, plain, titled
from sere.inspection import LayerView
from sere.inspection.shades import bars

SUBSTITUTES = (
    "Most frequent: the expert that is the first substitute of most others. Small outputs: rank correlation "
    "of being a good substitute with having small outputs."
)
CRITICAL = (
    "Experts that none reaches at that threshold, so that they are never replaced. In brackets the share of "
    "experts that would be kept if, beside them, K random ones were active, K as many as a token has."
)
CLUSTERS = "Within and between: mean similarity of pairs in one cluster, and of pairs in two."
ROUTED = (
    "Tokens that the moments of routed tokens are of. Fewest: of an expert that has any. Met: pairs of "
    "experts that some token was routed to both of; a pair that never met has no projection."
)
LARGEST = 3
"""Clusters whose sizes are given."""


def facts(artifact: Artifact, name: str = "model") -> None:
    """Print what the artifact is."""
    out = console()
    made = artifact.manifest.calibration
    rows = {
        name: f"{artifact.model.id} ({artifact.model.architecture})",
        "made": f"{made.source}, {made.sequences} x {made.sequence_length} tokens of {made.data}, "
        f"seed {made.seed}",
        "similarities": ", ".join(artifact.metrics),
        "routed moments": "yes" if "routed_count" in artifact.manifest.fields else "no",
        "norm predictor": "yes" if PREDICTOR in artifact.manifest.fields else "no",
        "hash": artifact.hash[:16],
    }
    if artifact.operating_points:
        rows["operating points"] = ", ".join(
            f"{key} = {point.policy}" for key, point in artifact.operating_points.items()
        )
    for key, value in rows.items():
        out.print(f"[bold]{key:17}[/bold]", end="")
        plain(out, value)
    out.print()


def show(views: Sequence[LayerView], *, brief: bool = False) -> None:
    """Print how alike the experts are, what stands in for them, and their groups, one row a layer."""
    put(_spread(views))
    put(_substitutes(views), SUBSTITUTES)
    if not brief:
        put(_critical(views), CRITICAL)
        put(_clusters(views), CLUSTERS)
        if any(view.routed for view in views):
            put(_routed(views), ROUTED)


def put(table: Table, note: str = "") -> None:
    """Print a table and what its figures are."""
    out = console()
    out.print(table)
    if note:
        plain(out, textwrap.fill(note, out.width) + "\n")


def sentences(said: Sequence[str]) -> None:
    """Print what the figures mean."""
    out = console()
    for sentence in said:
        plain(out, textwrap.fill(sentence, out.width, initial_indent="- ", subsequent_indent="  "))
    out.print()


def bare(title: str, *headings: str) -> Table:
    """Make a table with the layers' numbers first and figures after them."""
    table = titled(title, box=box.SIMPLE, pad_edge=False, title_justify="left")
    for heading in ("layer", *headings):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def figure(value: float | None, form: str = ".2f") -> str:
    """Write a figure; a dash where there is none."""
    return "-" if value is None else f"{value:{form}}"


def _spread(views: Sequence[LayerView]) -> Table:
    edges = views[0].spread.edges
    span = f"{edges[0]:.2f}{edges[-1]:>{len(edges) - 1 - len(f'{edges[0]:.2f}')}.2f}"
    headings = ("experts", span, "least", "25%", "median", "75%", "most")
    table = bare(f"{views[0].metric} similarity of pairs of experts", *headings)
    letters = console().options.ascii_only
    for view in views:
        drawn = bars(view.spread.counts, ascii_only=letters)
        shown = [figure(view.spread.at(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        table.add_row(str(view.index), str(view.num_experts), drawn, *shown)
    return table


def _substitutes(views: Sequence[LayerView]) -> Table:
    table = bare("Substitutes", "most frequent", "small\noutputs", "hardest to replace\n(best similarity)")
    for view in views:
        hardest = sorted(enumerate(view.substitutes), key=lambda pair: pair[1][1])[:3]
        table.add_row(
            str(view.index),
            f"{view.hub.expert} (first of {view.hub.share:.0%})" if view.hub else "-",
            figure(view.hub.small if view.hub else None),
            ", ".join(f"{expert} ({value:.2f})" for expert, (_, value) in hardest) or "-",
        )
    return table


def _critical(views: Sequence[LayerView]) -> Table:
    table = bare("Critical experts", *(f"at {each.threshold:g}" for each in views[0].critical))
    for view in views:
        table.add_row(str(view.index), *(f"{len(each.experts)} ({each.share:.0%})" for each in view.critical))
    return table


def _clusters(views: Sequence[LayerView]) -> Table:
    table = bare("Clusters", "cut at", "sizes", "alone", "within", "between", "silhou-\nette")
    for view in views:
        found = view.clusters
        sizes = [str(len(each)) for each in found.shared]
        more = f" + {len(sizes) - LARGEST} more" if len(sizes) > LARGEST else ""
        table.add_row(
            str(view.index),
            figure(found.level),
            ", ".join(sizes[:LARGEST]) + more or "-",
            str(found.alone),
            *(figure(value) for value in (found.within, found.between, found.silhouette)),
        )
    return table


def _routed(views: Sequence[LayerView]) -> Table:
    table = bare("Routed tokens", "fewest", "never\nrouted to", "pairs met", "tokens of a pair\n(median)")
    for view in views:
        found = view.routed
        if found is None:
            continue
        table.add_row(
            str(view.index),
            f"{found.fewest:,}",
            str(len(found.idle)),
            f"{found.met:,} of {found.pairs:,}",
            f"{found.median:,.0f}",
        )
    return table
