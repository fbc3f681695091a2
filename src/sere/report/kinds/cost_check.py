"""The record of ``benchmarks/cost_model.py``: predicted beside measured speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sere.profiling.check import CostCheck
from sere.report.blocks import Block, Charts, Section, Table, Text
from sere.report.charts.agreement import Dot, agreement
from sere.report.finding import Finding, Value
from sere.report.form import number, percent, speedup
from sere.report.kinds import profile
from sere.report.made import made
from sere.report.source import Source


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether it is such a check."""
    return raw.get("kind") == "sere-cost-check"


def read(text: str, name: str, sha256: str) -> Source:
    """Parse it."""
    record = CostCheck.model_validate_json(text)
    rows = made(record.profile.provenance, seconds=record.seconds)
    rows["model"] = record.stand_in
    found = tuple(
        Finding(
            source=name,
            policy=each.policy,
            load=f"batch {each.rows}",
            batch=each.rows,
            stand_in=True,
            experts=each.after,
            before=each.before,
            speed=Value(each.measured, each.low, each.high),
        )
        for each in record.results
    )
    return Source(
        name=name,
        kind="check of a cost model",
        sha256=sha256,
        record=record,
        made=rows,
        stand_in=record.stand_in,
        findings=found,
    )


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:
    """Draw prediction against measurement, then the profile that it came from."""
    record: CostCheck = source.record
    anchor = f"cost-{source.sha256[:6]}"
    rows = [
        [
            each.policy,
            str(each.rows),
            f"{number(each.before)} to {number(each.after)}",
            f"{each.predicted:.2f}",
            f"{each.counted:.2f}",
            speedup(Value(each.measured, each.low, each.high)),
            percent(each.error, 0, sign=True),
        ]
        for each in record.results
    ]
    columns = ["policy", "rows", "experts", "predicted", "from counted experts", "measured (range)", "off by"]
    dots = [
        Dot(
            f"{each.policy}, {each.rows} rows",
            letters.get(each.policy, ""),
            each.predicted,
            Value(each.measured, each.low, each.high),
        )
        for each in record.results
    ]
    picture = agreement(
        dots,
        anchor,
        title="Speed over unmodified",
        across="predicted",
        up="measured",
        digits=2,
    )
    sizes = ", ".join(str(size) for size in sorted({each.rows for each in record.results}))
    half, worst = percent(record.error, 0), percent(record.worst, 0)
    blocks: list[Block] = [
        Text(
            f"Measured on {record.stand_in} at batch sizes that the fit never saw ({sizes}), "
            f"{record.rounds} rounds in turns. Half of the predictions are within {half} of the measured "
            f"speed, all within {worst}; {record.sided} of {len(record.results)} say rightly whether the "
            "policy pays."
        ),
        Table("Predicted and measured speed over unmodified", columns, rows, code=True),
        Charts([picture]),
    ]
    fitted = profile.section(record.profile, record.stand_in, f"profile-{source.sha256[:6]}")
    return [Section(anchor, "Does the cost model hold?", blocks), fitted]
