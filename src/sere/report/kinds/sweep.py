"""The record of ``sere sweep``: every recipe over its knob at equal distinct experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sere.evaluation.sweep.estimate import Estimate
from sere.evaluation.sweep.record import SweepRecord
from sere.report.blocks import Block, Charts, Section, Table, Text
from sere.report.charts.pareto import Spot, pareto
from sere.report.finding import Finding, Value
from sere.report.form import called, interval, number, percent, plural
from sere.report.made import made
from sere.report.source import Source


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether it is a sweep."""
    return raw.get("kind") == "sere-sweep"


def read(text: str, name: str, sha256: str) -> Source:
    """Parse it."""
    record = SweepRecord.model_validate_json(text)
    return Source(
        name=name,
        kind="sweep",
        sha256=sha256,
        record=record,
        made=made(
            record.provenance,
            model=record.model,
            artifact=record.artifact,
            seeds={"order of the texts": record.config.get("shuffle", "unknown")},
            seconds=record.seconds,
        ),
        model=record.model,
        artifact=record.artifact,
        findings=tuple(_finding(record, setting, name) for setting in record.settings),
    )


def _value(estimate: Estimate) -> Value:
    return Value(estimate.mean, estimate.low, estimate.high)


def _finding(record: SweepRecord, setting: Any, name: str) -> Finding:
    solved = {(s.policy, s.batch_size): s for s in record.solutions}
    own = solved.get((setting.policy, setting.batch_size))
    plain = next(
        (s for s in record.solutions if s.series == "unmodified" and s.batch_size == setting.batch_size), None
    )
    kept = 1 / (1 + setting.perplexity_change.mean)
    if own is not None and plain is not None and plain.exact_match:
        kept = own.exact_match / plain.exact_match
    return Finding(
        source=name,
        policy=setting.policy,
        load=f"batch {setting.batch_size}",
        batch=setting.batch_size,
        experts=setting.experts.mean,
        before=record.before(setting.batch_size).mean,
        kl=_value(setting.kl),
        top1=setting.top1.mean,
        perplexity_change=_value(setting.perplexity_change),
        tasks=None if own is None else Value.of(own.exact_match, own.interval),
        kept=kept,
    )


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:
    """Draw KL against distinct experts for each batch size, and the table of all settings."""
    record: SweepRecord = source.record
    anchor = f"sweep-{source.sha256[:6]}"
    charts, tables = [], []
    for size in record.batch_sizes:
        settings = list(record.at(size))
        spots = [
            Spot(s.policy, letters.get(s.policy, ""), s.series, _value(s.experts), _value(s.kl))
            for s in settings
        ]
        if not spots:
            continue
        charts.append(
            pareto(
                spots,
                f"{anchor}-{size}",
                title=f"KL against distinct experts at batch {size} (unmodified: "
                f"{record.before(size).mean:.1f})",
                across="distinct experts per layer and step",
                up="KL, nats per token",
                more_is_better=False,
                logarithmic=True,
            )
        )
        tables.append(_table(record, size, settings, letters))
    seeds = record.config.get("seeds", "?")
    blocks: list[Block] = [
        Text(
            f"{plural(record.points, 'point')} on {seeds} disjoint shares of held-out text; "
            "intervals are 95%, over "
            "those shares. Compare recipes at equal distinct experts: that is what both axes are for."
        ),
        Charts(charts),
        *tables,
    ]
    return [Section(anchor, f"Every recipe over its knob: {called(record.model.id)}", blocks)]


def _table(record: SweepRecord, size: int, settings: list[Any], letters: Mapping[str, str]) -> Table:
    before = record.before(size).mean
    rows = [
        [
            s.policy,
            letters.get(s.policy, ""),
            f"{number(s.experts.mean)} ({percent(s.experts.mean / before, 0)})",
            interval(_value(s.kl)),
            percent(s.top1.mean),
            interval(_value(s.perplexity_change), 1, share=True, sign=True),
        ]
        for s in sorted(settings, key=lambda s: s.experts.mean)
    ]
    columns = [
        "policy",
        "in pictures",
        "experts read",
        "KL, nats (95%)",
        "same first choice",
        "perplexity (95%)",
    ]
    return Table(f"All settings at batch {size}, the fewest experts first", columns, rows, code=True)
