"""Tables of ``docs/who_wins.md`` that the record of ``sere sweep`` gives beside its own."""

from __future__ import annotations

from collections.abc import Sequence

from sere.evaluation.sweep import SweepRecord
from sere.evaluation.sweep import tables as sweep_tables
from sere.evaluation.sweep.front import interpolated, ratio

LEVELS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def against(record: SweepRecord, series: str, base: str) -> str:
    """Ratio of the KL of ``series`` to that of ``base`` at equal experts: a row a level, a column a batch."""
    sizes = [size for size in record.batch_sizes if size > 1]
    return _rows(record, [(f"{level:.0%}", series, level) for level in LEVELS], base, sizes, "experts read")


def half(record: SweepRecord, names: Sequence[str], base: str) -> str:
    """Ratio of KL to that of ``base`` at half of the experts: a row a series, a column a batch."""
    sizes = [size for size in record.batch_sizes if size > 1]
    return _rows(record, [(f"`{name}`", name, 0.5) for name in names], base, sizes, "series")


def pairings(record: SweepRecord, levels: Sequence[float] = (0.3, 0.4, 0.5, 0.6, 0.7)) -> str:
    """KL of every pairing of fill and weights, level by level."""
    columns = [{row[0]: row[1] for row in sweep_tables.equal_experts(record, level).rows} for level in levels]
    order = [row[0] for row in sweep_tables.equal_experts(record, 0.5).rows[1:]]
    lines = [f"| fill, weights | {' | '.join(f'at {level:.0%}' for level in levels)} |", "| --- " * 6 + "|"]
    for name in order:
        cells = (column.get(name, "-").replace("\n", " ") for column in columns)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _rows(
    record: SweepRecord, rows: Sequence[tuple[str, str, float]], base: str, sizes: Sequence[int], first: str
) -> str:
    heads = " | ".join(f"batch {size}" for size in sizes)
    lines = [f"| {first} | {heads} |", "| --- " * (len(sizes) + 1) + "|"]
    for title, series, level in rows:
        cells = (_ratio(record, series, base, size, level) for size in sizes)
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(record: SweepRecord, series: str, base: str, size: int, level: float) -> str:
    wanted = [level * value for value in record.before(size).seeds]
    own, other = (interpolated(record.at(size, name), wanted) for name in (series, base))
    if own is None or other is None:
        return "-"
    found = ratio(own, other)
    return f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})"
