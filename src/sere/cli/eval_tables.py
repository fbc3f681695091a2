"""Tables of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from sere.cli.output import titled
from sere.evaluation.harness.record import Average, EvalRecord, Paired, TaskResult

_SURE = 0.001


def eval_tables(record: EvalRecord) -> Iterator[Table]:
    """Draw, for each batch size, the policies over all tasks, and every task by itself."""
    for size in record.batch_sizes:
        yield _averages(record, size)
        if len({result.task for result in record.at(size)}) > 1:
            yield _by_task(record, size)


def _averages(record: EvalRecord, size: int) -> Table:
    own = [average for average in record.averages if average.batch_size == size]
    if not own:
        return _by_task(record, size)
    parts = list(own[0].parts)
    what = parts[0] if len(parts) == 1 else f"mean over {', '.join(parts)}"
    table = titled(
        f"{record.model.id}, {what}, {size} live sequences", title_justify="left", caption_justify="left"
    )
    headings = ("experts\nread", "score", "retained\n(95%)", "lost /\ngained", "p")
    table.add_column("policy", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for average in own:
        table.add_row(average.policy, _experts(average), f"{average.value:.1%}", *_pair(average.paired))
    count = sum(result.examples for result in record.at(size, own[0].policy))
    live = [result.mean_live for result in record.at(size, own[0].policy)]
    batch = f"the live batch held {min(live):.1f} to {max(live):.1f} sequences on average"
    table.caption = (
        f"{count:,} examples; {'read from results of the harness' if record.read else batch}. "
        "Retained: of the unmodified model's score on the same examples, bootstrap over examples. Lost and "
        "gained: examples that only the unmodified model solved, and only the policy. p: McNemar's exact "
        "test; below 0.05 a difference is hardly chance, if only one was looked at."
    )
    return table


def _by_task(record: EvalRecord, size: int) -> Table:
    table = titled(f"Score by task, {size} live sequences", title_justify="left", caption_justify="left")
    table.add_column("task")
    for policy in record.policies:
        table.add_column(policy, justify="right", overflow="fold")
    rows: dict[str, dict[str, TaskResult]] = {}
    for result in record.at(size):
        rows.setdefault(result.task, {})[result.policy] = result
    for task, results in rows.items():
        table.add_row(task, *(_cell(results.get(policy)) for policy in record.policies))
    table.caption = "* p under 0.05 by McNemar's exact test, each task looked at by itself."
    return table


def _cell(result: TaskResult | None) -> str:
    if result is None:
        return "-"
    pair = result.paired
    mark = "*" if pair is not None and pair.p_value is not None and pair.p_value < 0.05 else ""
    binary = all(0 <= end <= 1 for end in (result.value, *result.interval))
    return f"{result.value:.1%}{mark}" if binary else f"{result.value:.4g}{mark}"


def _experts(average: Average) -> str:
    if average.experts is None or average.before is None:
        return "-"
    return f"{average.experts:.1f} ({average.experts / average.before:.0%})"


def _pair(pair: Paired | None) -> list[str]:
    if pair is None:
        return ["-", "-", "-"]
    kept = "-"
    if pair.retained is not None and pair.retained_interval is not None:
        low, high = pair.retained_interval
        kept = f"{pair.retained:.1%}\n{low:.1%} to {high:.1%}"
    return [
        kept,
        "-" if pair.lost is None else f"{pair.lost} / {pair.gained}",
        "-" if pair.p_value is None else "<0.001" if pair.p_value < _SURE else f"{pair.p_value:.3f}",
    ]
