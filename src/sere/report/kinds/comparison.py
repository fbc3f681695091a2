"""The record of ``sere compare``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sere.evaluation.record import ComparisonRecord, PolicyResult
from sere.report.blocks import Block, Charts, Section, Table, Text
from sere.report.charts.dots import dots
from sere.report.charts.layers import by_layer
from sere.report.finding import CONTROLS, Finding, Value
from sere.report.form import called, interval, number, percent, plural, speedup
from sere.report.made import made
from sere.report.source import Source

HOW = {"real": "decoded step by step", "proxy": "in one parallel forward of virtual steps"}


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether it is a comparison."""
    return raw.get("kind") == "sere-comparison"


def read(text: str, name: str, sha256: str) -> Source:
    """Parse it."""
    return source_of(ComparisonRecord.model_validate_json(text), name, sha256, "comparison")


def source_of(record: ComparisonRecord, name: str, sha256: str, kind: str) -> Source:
    """Describe a comparison that lies in the file ``name``."""
    return Source(
        name=name,
        kind=kind,
        sha256=sha256,
        record=record,
        made=made(
            record.provenance,
            model=record.model,
            artifact=record.artifact,
            seeds={"texts and intervals": record.config.get("seed", "unknown")},
            seconds=record.seconds,
        ),
        model=record.model,
        artifact=record.artifact,
        findings=tuple(findings(record, name)),
    )


def findings(record: ComparisonRecord, name: str) -> Iterable[Finding]:
    """Give one finding for each result."""
    for result in record.results:
        plain = record.result("unmodified", result.batch_size)
        near = result.fidelity
        kept = near.reference_perplexity / near.perplexity
        if result.tasks is not None and plain.tasks is not None and plain.tasks.exact_match:
            kept = result.tasks.exact_match / plain.tasks.exact_match
        yield Finding(
            source=name,
            policy=result.policy,
            load=f"batch {result.batch_size}",
            batch=result.batch_size,
            experts=result.experts.after,
            before=plain.experts.before,
            of=result.experts.of,
            kl=Value.of(near.kl, near.kl_interval),
            top1=near.top1_agreement,
            perplexity_change=Value.of(near.perplexity_change),
            tasks=None if result.tasks is None else Value.of(result.tasks.exact_match, result.tasks.interval),
            kept=kept,
            speed=_speed(result),
        )


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:
    """Draw a comparison."""
    return [section(source.record, source.name, letters, f"comparison-{source.sha256[:6]}")]


def section(record: ComparisonRecord, name: str, letters: Mapping[str, str], anchor: str) -> Section:
    """Draw what was read, what was lost and how fast it was, batch size by batch size."""
    sizes = list(dict.fromkeys(result.batch_size for result in record.results))
    near = record.results[0].fidelity
    how = HOW.get(str(record.config.get("mode")), "")
    blocks: list[Block] = [
        Text(
            f"Held-out text of {plural(near.tokens, 'token')} at the first batch size, {how}; the unmodified "
            "model and the control none, which runs the whole path and changes nothing, stand first."
        )
    ]
    for size in sizes:
        results = [result for result in record.results if result.batch_size == size]
        blocks.append(_table(results, letters))
        charts = [
            *_layers(results, letters, f"{anchor}-l{size}"),
            *_speeds(results, letters, f"{anchor}-s{size}"),
        ]
        if charts:
            blocks.append(Charts(charts))
        blocks += [*_tasks(results), *_company(results)]
    return Section(anchor, f"{called(record.model.id)} beside itself unmodified ({name})", blocks)


def _table(results: list[PolicyResult], letters: Mapping[str, str]) -> Table:
    first = results[0]
    tasks, speed = any(r.tasks for r in results), any(r.speed for r in results)
    columns = ["policy", "in pictures", f"experts read, of {first.experts.of}", "KL, nats (95%)"]
    columns += ["same first choice", "perplexity"]
    columns += ["tasks solved (95%)"] * tasks + ["speed-up (range)", "tokens/s"] * speed
    rows = []
    for result in results:
        near = result.fidelity
        row = [
            result.policy,
            letters.get(result.policy, ""),
            f"{number(result.experts.after)} ({percent(result.experts.after / first.experts.before, 0)})",
            interval(Value.of(near.kl, near.kl_interval)),
            percent(near.top1_agreement),
            f"{number(near.perplexity, 2)} ({percent(near.perplexity_change, sign=True)})",
        ]
        if tasks:
            solved = result.tasks
            share = None if solved is None else Value.of(solved.exact_match, solved.interval)
            row.append(interval(share, 1, share=True))
        if speed:
            row += [speedup(_speed(result)), number(result.speed.tokens_per_second) if result.speed else ""]
        rows.append(row)
    return Table(
        f"{first.batch_size} live sequence{'s' * (first.batch_size != 1)}",
        columns,
        rows,
        note="Experts read: distinct experts per layer and decoding step, and their share of the "
        "unmodified model's.",
        code=True,
    )


def _speed(result: PolicyResult) -> Value | None:
    speed = result.speed
    return None if speed is None else Value(speed.ratio, speed.ratio_low, speed.ratio_high)


def _speeds(results: list[PolicyResult], letters: Mapping[str, str], name: str) -> list[Any]:
    rows = [
        (result.policy, letters.get(result.policy, result.policy), speed)
        for result in results
        if (speed := _speed(result)) is not None and result.policy != "unmodified"
    ]
    size = results[0].batch_size
    return [dots(rows, name, title=f"Speed at batch {size}", across="speed over unmodified")] if rows else []


def _layers(results: list[PolicyResult], letters: Mapping[str, str], name: str) -> list[Any]:
    known = [r for r in results if r.experts.layers and r.policy != "none"]
    if not known:
        return []
    layers = [_number(layer.name) for layer in known[0].experts.layers]
    lines = {r.policy: [layer.after for layer in r.experts.layers] for r in known}
    marks = {policy: letters.get(policy, policy) for policy in lines}
    title = f"Distinct experts by layer at batch {results[0].batch_size}"
    return [by_layer(lines, layers, name, title=title, up="distinct experts a step", letters=marks)]


def _number(layer: str) -> str:
    """Take the layer's number from its module path."""
    return next((part for part in layer.split(".") if part.isdigit()), layer)


def _company(results: list[PolicyResult]) -> list[Block]:
    known = [(result.policy, result.company) for result in results if result.company is not None]
    if not known:
        return []
    rows = [
        [policy, interval(Value.of(other.kl, other.kl_interval), 4), percent(other.top1)]
        for policy, other in known
    ]
    first = known[0][1]
    note = (
        f"The same {plural(first.sequences, 'sequence')} in two batches with other neighbours: how "
        "much an answer depends "
        "on who else is served. The unmodified model's is the noise of arithmetic."
    )
    title = f"Other company at batch {results[0].batch_size}"
    return [Table(title, ["policy", "KL, nats (95%)", "same first choice"], rows, note=note, code=True)]


def _tasks(results: list[PolicyResult]) -> list[Block]:
    solved = [result for result in results if result.tasks is not None and result.policy != CONTROLS[1]]
    if not solved or solved[0].tasks is None:
        return []
    names = list(solved[0].tasks.by_task)
    rows = [[r.policy, *(percent(r.tasks.by_task.get(task), 0) for task in names)] for r in solved if r.tasks]
    each = solved[0].tasks.examples // max(1, len(names))
    note = f"About {each} prompts a task: differences of a few per cent between single cells are chance."
    title = f"Exact answers by task at batch {results[0].batch_size}"
    return [Table(title, ["policy", *names], rows, note=note, code=True)]
