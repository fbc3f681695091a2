"""Tables of a sweep."""

from __future__ import annotations

from sere.evaluation.sweep.estimate import Estimate
from sere.evaluation.sweep.front import LEVELS, Standing, efficient, standings
from sere.evaluation.sweep.grid import Grid
from sere.evaluation.sweep.record import SweepRecord

MOST_NAMED = 4


def equal_experts(record: SweepRecord, level: float = 0.5) -> Grid:
    """KL of every series at a share of the unmodified model's distinct experts, by batch size."""
    sizes = record.batch_sizes
    ranks = {size: {each.series: each for each in standings(record, size, level)} for size in sizes}
    reached = [name for name in record.series if any(name in rank for rank in ranks.values())]

    def worth(name: str) -> tuple[float, float]:
        ratios = [rank[name].ratio.mean for rank in ranks.values() if name in rank]
        return sum(ratios) / len(ratios), -len(ratios)

    rows = [
        (name, *(_standing(ranks[size].get(name)) for size in sizes)) for name in sorted(reached, key=worth)
    ]
    experts = ("experts read", *(f"{level * record.before(size).mean:.1f}" for size in sizes))
    return Grid(
        f"KL at {level:.0%} of the unmodified model's distinct experts",
        ("series", *(f"batch {size}" for size in sizes)),
        (experts, *rows),
        "Interpolated between a series' own settings, with its 95% interval over seeds; best series first. "
        "* is the least of its column, = cannot be told from it (paired by seed). - is not reached.",
    )


def winners(record: SweepRecord) -> Grid:
    """Name the series on the front at every level and batch size."""
    rows = []
    for level in LEVELS:
        cells = [_names(standings(record, size, level)) for size in record.batch_sizes]
        rows.append((f"{level:.0%}", *cells))
    return Grid(
        "Least KL at equal distinct experts",
        ("experts", *(f"batch {size}" for size in record.batch_sizes)),
        tuple(rows),
        "Experts as a share of the unmodified model's. After the best series: those not told apart from it.",
    )


def front(record: SweepRecord, batch_size: int) -> Grid:
    """List the settings that no other one beats in experts and KL both."""
    before = record.before(batch_size).mean
    rows = [
        (
            each.policy,
            f"{each.experts.mean:.1f}\n({each.experts.mean / before:.0%})",
            _between(each.kl, ".4f"),
            _between(each.top1, ".1%"),
            _between(each.perplexity_change, "+.1%"),
        )
        for each in efficient(record.at(batch_size))
    ]
    return Grid(
        f"The front at batch {batch_size}, where the unmodified model reads {before:.1f} experts",
        ("setting", "experts", "KL", "same top-1", "perplexity"),
        tuple(rows),
    )


def companies(record: SweepRecord) -> Grid:
    """Tell what other neighbours change."""
    rows = [
        (
            each.policy,
            str(each.batch_size),
            f"{each.kl:.5f}\n({each.kl_interval[0]:.5f} to {each.kl_interval[1]:.5f})",
            f"{each.top1:.2%}",
        )
        for each in record.company
    ]
    return Grid(
        "The same sequences in other company",
        ("setting", "batch", "KL", "same top-1"),
        tuple(rows),
        "Between a sequence's predictions in two batches. The unmodified model's is the noise of arithmetic.",
    )


def solutions(record: SweepRecord) -> Grid:
    """Tell exact match beside experts and KL."""
    found = {(each.policy, each.batch_size): each for each in record.settings}
    rows = []
    for each in record.solutions:
        setting = found.get((each.policy, each.batch_size))
        low, high = each.interval
        rows.append(
            (
                each.policy,
                "-" if setting is None else f"{setting.experts.mean:.1f}",
                "-" if setting is None else f"{setting.kl.mean:.4f}",
                f"{each.exact_match:.1%}\n({low:.0%} to {high:.0%})",
                f"{each.same:.1%}",
            )
        )
    size = record.solutions[0].batch_size if record.solutions else 0
    return Grid(
        f"Exact match, decoded for real with {size} live sequences",
        ("setting", "experts", "KL", "right", "same answer as unmodified"),
        tuple(rows),
        "Experts and KL are those of the sweep, on text.",
    )


def page(record: SweepRecord) -> str:
    """Write all tables as one Markdown page."""
    grids = [equal_experts(record), winners(record)]
    grids += [front(record, size) for size in record.batch_sizes]
    grids += [companies(record)] * bool(record.company) + [solutions(record)] * bool(record.solutions)
    parts = [
        f"## {grid.title}\n\n{grid.markdown()}\n" + f"\n{grid.note}\n" * bool(grid.note) for grid in grids
    ]
    return f"# Comparison of policies on {record.model.id}\n\n" + "\n".join(parts)


def _standing(found: Standing | None) -> str:
    if found is None:
        return "-"
    mark = (
        " *" if found.ratio.mean == 1 and found.ratio.low == found.ratio.high else " =" if found.tied else ""
    )
    return f"{found.kl.mean:.4f}{mark}\n({found.kl.low:.4f} to {found.kl.high:.4f})"


def _names(ranked: list[Standing]) -> str:
    tied = [each.series for each in ranked if each.tied]
    more = [f"and {len(tied) - MOST_NAMED} more"] * (len(tied) > MOST_NAMED)
    return ",\n".join([*tied[:MOST_NAMED], *more]) or "-"


def _between(value: Estimate, form: str) -> str:
    return f"{value.mean:{form}}\n({value.low:{form}} to {value.high:{form}})"
