"""The record of ``sere bench serve`` and ``sere bench read``: a server under load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sere.bench.served.record import ServedRecord
from sere.report.blocks import Block, Charts, Section, Text
from sere.report.finding import Finding
from sere.report.form import percent, plural
from sere.report.kinds.served_drawn import at, layers, over_rates, slowest, speeds, table, value_of
from sere.report.made import made
from sere.report.source import Source


def recognises(raw: Mapping[str, object]) -> bool:
    """Say whether it is a served benchmark."""
    return raw.get("kind") == "sere-bench-served"


def read(text: str, name: str, sha256: str) -> Source:
    """Parse it."""
    record = ServedRecord.model_validate_json(text)
    rows = made(record.provenance, model=record.model, artifact=record.artifact, seconds=record.seconds)
    if record.stand_in:
        rows["model"] = record.stand_in
    if len(record.runs) > 1:
        rows["runs"] = "; ".join(f"{run.created}: {' '.join(run.command)}" for run in record.runs)
    if record.config:
        rows["load"] = _settings(record.config)
    if not record.runs:
        rows["files"] = "; ".join(
            f"{cell.variant} at {at(cell.rate)}: {cell.result} ({cell.load.tool}, SHA-256 {cell.sha256[:12]})"
            for cell in record.cells
        )
    if record.environment:
        rows["environment"] = ", ".join(f"{key}={value}" for key, value in record.environment.items())
    return Source(
        name=name,
        kind="server under load",
        sha256=sha256,
        record=record,
        made=rows,
        model=None if record.stand_in else record.model,
        stand_in=record.stand_in,
        artifact=record.artifact,
        findings=tuple(_findings(record, name)),
    )


def _settings(config: Mapping[str, object]) -> str:
    return ", ".join(
        f"{key.replace('_', ' ')}: {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in config.items()
        if value not in (None, [], {})
    )


def _findings(record: ServedRecord, name: str) -> Iterator[Finding]:
    for each in record.summaries:
        before = each.before if each.before is not None else _control(record, each.rate)
        yield Finding(
            source=name,
            policy=each.variant,
            load=at(each.rate),
            stand_in=bool(record.stand_in),
            experts=each.after if each.after is not None or each.variant != "unmodified" else before,
            before=before,
            speed=value_of(each.decoding),
            spread="least to greatest repetition",
        )


def _control(record: ServedRecord, rate: float) -> float | None:
    """Distinct experts that the control counted: the unmodified server has no counters."""
    return next((e.before for e in record.summaries if (e.variant, e.rate) == ("none", rate)), None)


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:
    """Draw one table a rate, then each figure over the rates, and the slowest hundredth."""
    record: ServedRecord = source.record
    anchor = f"served-{source.sha256[:6]}"
    rates = list(dict.fromkeys(each.rate for each in record.summaries))
    blocks: list[Block] = [Text(_opening(source, record)), *_warnings(record)]
    blocks += [table(record, rate, letters, rate == rates[-1]) for rate in rates]
    charts = [*over_rates(record, rates, letters, anchor), *speeds(record, rates, letters, anchor)]
    blocks += [Charts([*charts, *layers(record, rates, letters, anchor)]), slowest(record)]
    return [Section(anchor, f"A server under load ({source.name})", blocks)]


def _opening(source: Source, record: ServedRecord) -> str:
    times = max((each.repetitions for each in record.summaries), default=0)
    text = f"{plural(len(record.cells), 'load')}, {plural(times, 'repetition')} at most of each"
    if "input_tokens" in record.config:
        text += (
            f"; {record.config['input_tokens']} tokens in, {record.config['output_tokens']} out, "
            "a fresh server for each variant and repetition"
        )
    seen = [cell.activity.counted for cell in record.cells if cell.activity is not None]
    if seen:
        text += (
            f". The servers' own counters saw {percent(min(seen), 0)} or more of the answers' decoding steps"
        )
    if source.stand_in:
        text += f". The model is a stand-in, {source.stand_in}: it says nothing about quality"
    return text + ". Figures are medians over requests, then over repetitions, with least and greatest."


def _warnings(record: ServedRecord) -> list[Block]:
    failed = [each for each in record.summaries if each.failed]
    if not failed:
        return []
    said = "; ".join(f"{each.variant} at {at(each.rate)}: {each.failed}" for each in failed)
    return [Text(f"Some requests were not answered ({said}). Their figures are of the others.", tone="note")]
