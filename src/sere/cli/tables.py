"""Tables of a comparison for a terminal."""

from __future__ import annotations

from rich.table import Table

from sere.evaluation import ComparisonRecord, PolicyResult


def comparison_tables(record: ComparisonRecord) -> list[Table]:
    """One table a batch size, one row a policy, the two controls first."""
    sizes = dict.fromkeys(result.batch_size for result in record.results)
    return [_table(record, size) for size in sizes]


def _table(record: ComparisonRecord, size: int) -> Table:
    results = [result for result in record.results if result.batch_size == size]
    table = Table(title=f"{record.model.id}, {size} live sequences, {record.config['mode']} decoding")
    table.add_column("policy")
    for heading in ("experts read", "of routed", "KL", "same top-1", "perplexity"):
        table.add_column(heading, justify="right")
    if any(result.tasks for result in results):
        table.add_column("tasks right", justify="right")
    if any(result.speed for result in results):
        table.add_column("tokens/s", justify="right")
        table.add_column("speed-up", justify="right")
    for result in results:
        table.add_row(*_cells(result))
    table.caption = (
        "experts read: distinct experts per layer and decoding step; KL in nats against the unmodified "
        "model, with 95% interval; speed-up: median and range over rounds taken in turns"
    )
    return table


def _cells(result: PolicyResult) -> list[str]:
    experts, near = result.experts, result.fidelity
    low, high = near.kl_interval
    cells = [
        result.policy,
        f"{experts.after:.1f} of {experts.of}",
        f"{experts.after / experts.before:.0%}" if experts.before else "-",
        f"{near.kl:.4f} [{low:.4f}, {high:.4f}]",
        f"{near.top1_agreement:.1%}",
        f"{near.perplexity:.2f} ({near.perplexity_change:+.1%})",
    ]
    if result.tasks is not None:
        low, high = result.tasks.interval
        cells.append(f"{result.tasks.exact_match:.1%} [{low:.0%}, {high:.0%}]")
    if result.speed is not None:
        speed = result.speed
        cells += [
            f"{speed.tokens_per_second:.0f}",
            f"{speed.ratio:.2f}x [{speed.ratio_low:.2f}, {speed.ratio_high:.2f}]",
        ]
    return cells
