"""Tables of ``sere tune`` for a terminal of 80 columns."""

from __future__ import annotations

from sere.cli.output import console
from sere.cli.tables import grid_table
from sere.evaluation.sweep.estimate import Estimate
from sere.evaluation.sweep.grid import Grid
from sere.tuning.record import PointRecord, TuneRecord


def show(record: TuneRecord) -> None:
    """Print the operating points, and what they were chosen from."""
    for grid in (points(record), candidates(record)):
        console().print(grid_table(grid))


def points(record: TuneRecord) -> Grid:
    """Operating points on held-out texts, a row for each batch size."""
    rows = [row for point in record.points for row in _rows(point)]
    return Grid(
        f"Operating points for {record.tolerance}, on held-out texts",
        ("point", "batch", "limit", "loss", "same top-1", "experts read", "saved"),
        tuple(rows),
        f"Loss, agreement and experts with their 95% intervals over {len(record.heldout)} shares of text "
        f"that the search, on {len(record.search)} others, did not see.",
    )


def candidates(record: TuneRecord) -> Grid:
    """Tell what the search looked at for the whole tolerance."""
    rows = [
        (
            each.recipe,
            str(each.batch_size),
            each.policy or ("refused" if each.refused else "none"),
            "-" if each.cost is None else f"{each.cost:.4g}",
            each.final or "-",
            "-" if each.final_cost is None else f"{each.final_cost:.4g}",
        )
        for each in record.candidates
    ]
    return Grid(
        "Looked at for the whole tolerance",
        ("recipe", "batch", "at first", "cost", "surely within", "cost"),
        tuple(rows),
        "Cost: distinct experts read, or predicted seconds of a step. At first: strongest setting within the "
        "tolerance on a few shares; surely within: on all shares of the search, with its safety margin.",
    )


def _rows(point: PointRecord) -> list[tuple[str, ...]]:
    if point.policy is None:
        return [(point.name, "-", f"{point.limit:.4g}", "no setting keeps it", "-", "-", "-")]
    return [
        (
            f"{point.name}\n{size.policy or 'as routed'}",
            str(size.batch_size),
            f"{point.limit:.4g}",
            _between(size.loss, ".4f") + ("" if size.met else "\nnot confirmed"),
            _between(size.top1, ".1%"),
            f"{size.after.mean:.1f}\nof {size.before.mean:.1f}",
            f"{1 - size.after.mean / size.before.mean:.0%}"
            + (f"\n{size.speedup:.2f}x" if size.speedup is not None else ""),
        )
        for size in point.sizes
    ]


def _between(value: Estimate, form: str) -> str:
    return f"{value.mean:{form}}\n({value.low:{form}} to {value.high:{form}})"
