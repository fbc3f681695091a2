"""The record of ``sere demo``: a comparison, and speed at a real size on random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sere.demo.run import DemoRecord
from sere.report.blocks import Charts, Section, Table, Text
from sere.report.charts.dots import dots
from sere.report.finding import Finding, Value
from sere.report.form import number, percent, speedup
from sere.report.kinds import comparison
from sere.report.made import made
from sere.report.source import Source

STAND_IN = "one block of Qwen3-30B-A3B's size with random weights"


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether it is a demonstration."""
    return raw.get("kind") == "sere-demo"


def read(text: str, name: str, sha256: str) -> Source:
    """Parse it."""
    record = DemoRecord.model_validate_json(text)
    source = comparison.source_of(record.comparison, name, sha256, "demonstration")
    size = int(str(record.real_size.config["batch_size"]))
    first = record.real_size.results[0]
    speeds = tuple(
        Finding(
            source=name,
            policy=result.policy,
            load=f"batch {size}",
            batch=size,
            stand_in=True,
            experts=result.experts.after,
            before=first.experts.before,
            of=result.experts.of,
            speed=Value(result.speed.ratio, result.speed.ratio_low, result.speed.ratio_high),
        )
        for result in record.real_size.results
    )
    rows = {
        f"speed: {key}": value
        for key, value in made(record.real_size.provenance).items()
        if key == "hardware"
    }
    return dataclasses.replace(
        source,
        record=record,
        made={**source.made, **rows},
        stand_in=STAND_IN,
        findings=source.findings + speeds,
        facts={"calibration_seconds": record.calibration_seconds, "quick": record.quick},
    )


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:
    """Draw the comparison, then the speed."""
    record: DemoRecord = source.record
    found = comparison.section(record.comparison, source.name, letters, f"demo-{source.sha256[:6]}")
    if record.quick:
        found.blocks.insert(0, Text("A short run (--quick): its figures are rough.", tone="note"))
    return [found, _speed(source, record, letters)]


def _speed(source: Source, record: DemoRecord, letters: Mapping[str, str]) -> Section:
    results, anchor = record.real_size.results, f"demo-speed-{source.sha256[:6]}"
    before = results[0].experts.before
    table = Table(
        f"{record.real_size.config['batch_size']} live sequences, {STAND_IN}",
        [
            "policy",
            "in pictures",
            f"experts read, of {results[0].experts.of}",
            "tokens/s",
            "speed-up (range)",
        ],
        [
            [
                result.policy,
                letters.get(result.policy, ""),
                f"{number(result.experts.after)} ({percent(result.experts.after / before, 0)})",
                number(result.speed.tokens_per_second),
                speedup(Value(result.speed.ratio, result.speed.ratio_low, result.speed.ratio_high)),
            ]
            for result in results
        ],
        note=f"Median of {results[0].speed.rounds} rounds in turns.",
        code=True,
    )
    rows = [
        (
            r.policy,
            letters.get(r.policy, r.policy),
            Value(r.speed.ratio, r.speed.ratio_low, r.speed.ratio_high),
        )
        for r in results
        if r.policy != "unmodified"
    ]
    chart = dots(rows, anchor, title="Speed at a real size", across="speed over unmodified")
    text = Text(
        f"Measured on {STAND_IN}: the small model fits into the processor's cache and shows no gain. Random "
        "weights say nothing about quality."
    )
    return Section(anchor, "Speed at a real layer's size", [text, table, Charts([chart])])
