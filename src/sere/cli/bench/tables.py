"""Tables of a benchmark for a terminal of 80 columns."""

from __future__ import annotations

from rich.table import Table

from sere.bench.decode.record import DecodeRecord, DecodeResult
from sere.bench.served.record import ServedRecord, Spread, Summary
from sere.cli.tables import grid_table
from sere.evaluation.sweep.grid import Grid

_NOTE = (
    "Times in ms, medians over requests; each is the median over repetitions, with least and greatest. "
    "TPOT: time per output token after the first. Speed-up: unmodified TPOT over this one's, in the same "
    "repetition. Experts: distinct ones per layer and step, as the server counted them."
)


def served_tables(record: ServedRecord) -> list[Table]:
    """One table a rate, one row a variant, the two controls first."""
    rates = list(dict.fromkeys(each.rate for each in record.summaries))
    return [_at(record, rate, rate == rates[-1]) for rate in rates]


_DECODE_NOTE = (
    "Medians over rounds, with least and greatest. Speed-up: over the unmodified model in the same round. "
    "Experts: distinct ones per layer and step, before and after re-routing."
)


def decode_tables(record: DecodeRecord) -> list[Table]:
    """One table a batch size, one row a variant, the two controls first."""
    sizes = list(dict.fromkeys(each.batch_size for each in record.results))
    return [_at_size(record, size, size == sizes[-1]) for size in sizes]


def _at_size(record: DecodeRecord, size: int, last: bool) -> Table:
    found = [each for each in record.results if each.batch_size == size]
    headings = ("variant", "experts", "ms a step", "tokens/s", "speed-up")
    title = f"batch {size}, {record.engine}, {found[0].rounds} round{'s' * (found[0].rounds != 1)}"
    rows = tuple(_decode_row(each) for each in found)
    return grid_table(Grid(title, headings, rows, _DECODE_NOTE if last else ""))


def _decode_row(found: DecodeResult) -> tuple[str, ...]:
    counted = found.experts
    experts = "-" if counted is None else f"{counted.before:.1f} ->\n{counted.after:.1f}"
    figures = ((found.step_ms, 1), (found.tokens_per_second, 1), (found.ratio, 2))
    return (found.variant, experts, *(_spread(figure, digits) for figure, digits in figures))


def _at(record: ServedRecord, rate: float, last: bool) -> Table:
    found = [each for each in record.summaries if each.rate == rate]
    goodput = any(each.goodput for each in found)
    headings = ["variant", "experts", "TTFT", "TPOT", "speed-up", "ITL p99", "tokens/s"]
    headings += ["goodput/s"] * goodput
    rows = [_row(each, goodput) for each in found]
    title = f"{'all at once' if rate == float('inf') else f'{rate:g} requests a second'}, " + (
        f"{found[0].repetitions} repetition{'s' * (found[0].repetitions != 1)}"
    )
    return grid_table(Grid(title, tuple(headings), tuple(rows), _NOTE if last else ""))


def _row(found: Summary, goodput: bool) -> tuple[str, ...]:
    experts = "-" if found.before is None else f"{found.before:.1f} ->\n{found.after:.1f}"
    row = [found.variant, experts, _spread(found.ttft, 0), _spread(found.tpot, 1)]
    row += [_spread(found.decoding, 2), _spread(found.itl_p99, 0), _spread(found.tokens_per_second, 1)]
    return (*row, _spread(found.goodput, 2)) if goodput else tuple(row)


def _spread(found: Spread | None, digits: int) -> str:
    if found is None:
        return "-"
    text = f"{found.median:.{digits}f}"
    return text if found.low == found.high else f"{text}\n{found.low:.{digits}f}-{found.high:.{digits}f}"
