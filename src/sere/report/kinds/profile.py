"""The record of ``sere profile``: what a step costs on a device, and what is predicted from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sere.profiling import ProfileRecord, tables
from sere.report.blocks import Block, Charts, Section, Table, Text
from sere.report.charts.agreement import Dot, agreement
from sere.report.finding import Value
from sere.report.made import made
from sere.report.source import Source

MILLI = 1e3


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether it is a profile."""
    return raw.get("kind") == "sere-profile"


def read(text: str, name: str, sha256: str) -> Source:
    """Parse it."""
    record = ProfileRecord.model_validate_json(text)
    return Source(
        name=name,
        kind="profile",
        sha256=sha256,
        record=record,
        made=made(record.provenance, model=record.model, artifact=record.artifact, seconds=record.seconds),
        model=record.model,
        artifact=record.artifact,
    )


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:  # noqa: ARG001 - as all kinds
    """Draw the fit, then the predictions."""
    record: ProfileRecord = source.record
    return [section(record, record.model.id, f"profile-{source.sha256[:6]}")]


def section(record: ProfileRecord, model: str, anchor: str) -> Section:
    """Draw a profile of ``model``."""
    steps, expected = tables.steps(record), tables.predictions(record)
    dots = [
        Dot(
            f"{step.rows} rows, {step.experts} experts",
            str(step.rows),
            step.predicted * MILLI,
            Value(step.seconds * MILLI, step.low * MILLI, step.high * MILLI),
        )
        for step in record.steps
    ]
    picture = agreement(
        dots, anchor, title="Steps by rows", across="fitted, ms a step", up="measured, ms a step", digits=1
    )
    blocks: list[Block] = [
        Text(steps.note),
        Charts([picture]),
        Table(expected.title, _plain(expected.headings), expected.rows, note=expected.note, code=True),
    ]
    return Section(anchor, f"What a step costs: {model} on {record.cost.place}", blocks)


def _plain(headings: tuple[str, ...]) -> list[str]:
    return [heading.replace("\n", " ") for heading in headings]
