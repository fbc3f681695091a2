"""Tables of a comparison for a terminal of 80 columns."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from sere.cli.output import NARROWEST, titled
from sere.evaluation import ComparisonRecord, PolicyResult
from sere.evaluation.sweep.grid import Grid

SHORT = 1000.0
"""Perplexities from here on are shown without decimals."""
_HOW = {"real": "decoded step by step", "proxy": "in one parallel forward of virtual steps"}


def comparison_tables(record: ComparisonRecord) -> list[Table]:
    """One table a batch size, one row a policy, the two controls first; then one of other company."""
    sizes = dict.fromkeys(result.batch_size for result in record.results)
    tables = [_table(record, size) for size in sizes]
    if any(result.company for result in record.results):
        tables.append(_company_table(record))
    return tables


def _company_table(record: ComparisonRecord) -> Table:
    rows = [
        (
            result.policy,
            str(result.batch_size),
            f"{seen.kl:.5f}" + _between(seen.kl_interval, ".5f", " to "),
            f"{seen.top1:.2%}",
        )
        for result in record.results
        if (seen := result.company) is not None
    ]
    note = (
        "Between a sequence's predictions in two batches with other neighbours, with the 95% interval of KL: "
        "how much an answer depends on who else is served. The unmodified model's is the noise of arithmetic."
    )
    headings = ("policy", "live", "KL", "same top-1")
    return grid_table(Grid("The same sequences in other company", headings, tuple(rows), note))


def grid_table(grid: Grid) -> Table:
    """Turn a table of words into one for the terminal; the first column holds names, the others figures."""
    width = min(max(len(grid.title), NARROWEST - 10 if grid.note else 0), NARROWEST)
    table = titled(grid.title, box=box.SIMPLE, pad_edge=False, caption=Text(grid.note), min_width=width)
    table.title_justify = table.caption_justify = "left"
    for number, heading in enumerate(grid.headings):
        table.add_column(Text(heading), justify="right" if number else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(
            *(Text(cell if number else cell.replace(",", ",\n")) for number, cell in enumerate(row))
        )
        table.add_section()
    return table


def _table(record: ComparisonRecord, size: int) -> Table:
    results = [result for result in record.results if result.batch_size == size]
    first = results[0]
    how = _HOW.get(str(record.config.get("mode")), "")
    table = titled(f"{record.model.id}: {size} live sequences, {how}", box=box.SIMPLE, pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    table.add_column("policy", overflow="fold")
    headings = [f"experts\nread\nof {first.experts.of}", "KL", "same\ntop-1", "perplex-\nity"]
    headings += ["tasks\nright"] * any(result.tasks for result in results)
    headings += ["tokens/s\nspeed-up\n(range)"] * any(result.speed for result in results)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        table.add_row(*_cells(result, first.experts.before))
        table.add_section()
    table.caption = _caption(results)
    return table


def _cells(result: PolicyResult, unmodified: float) -> list[str]:
    experts, near = result.experts, result.fidelity
    cells = [
        result.policy.replace(",", ",\n"),
        f"{experts.after:.1f}\n{experts.after / unmodified:.0%}" if unmodified else "-",
        f"{near.kl:.4f}" + (_between(near.kl_interval, ".4f", " to\n") if near.sequences > 1 else ""),
        f"{near.top1_agreement:.1%}",
        f"{near.perplexity:.{2 if near.perplexity < SHORT else 0}f}\n{near.perplexity_change:+.1%}",
    ]
    if result.tasks is not None:
        cells.append(f"{result.tasks.exact_match:.1%}" + _between(result.tasks.interval, ".0%"))
    if result.speed is not None:
        speed = result.speed
        cells.append(
            f"{speed.tokens_per_second:.0f}\n{speed.ratio:.2f}x"
            + _between((speed.ratio_low, speed.ratio_high), ".2f")
        )
    return cells


def _between(interval: tuple[float, float], form: str, middle: str = "-") -> str:
    low, high = interval
    return f"\n{low:{form}}{middle}{high:{form}}"


def _caption(results: list[PolicyResult]) -> str:
    near = results[0].fidelity
    parts = [
        "Experts read: distinct experts per layer and decoding step, and their share of the unmodified "
        f"model's. KL (nats), same top-1 and perplexity: predictions of {near.tokens:,} tokens in "
        f"{near.sequences} sequences, against the unmodified model"
        + ("; below KL its 95% interval." if near.sequences > 1 else ".")
    ]
    solved = [result.tasks for result in results if result.tasks]
    if solved:
        live = [tasks.mean_live for tasks in solved]
        parts.append(
            f"Tasks right: exact answers to {solved[0].examples} prompts, with 95% interval; "
            f"{min(live):.1f} to {max(live):.1f} sequences were live in a step of them, on the mean."
        )
    if any(result.speed for result in results):
        parts.append("Speed-up: median and range over rounds that the policies take in turns.")
    return " ".join(parts)
