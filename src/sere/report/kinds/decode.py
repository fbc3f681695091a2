"""The record of ``sere bench decode``: decoding at fixed batch sizes, offline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sere.bench.decode.record import DecodeRecord, DecodeResult
from sere.report.blocks import Block, Chart, Charts, Section, Table, Text
from sere.report.charts.dots import dots
from sere.report.charts.layers import by_layer
from sere.report.finding import Finding, Value
from sere.report.form import interval, number, percent, plural, speedup
from sere.report.kinds.served_drawn import value_of
from sere.report.made import made
from sere.report.source import Source

ENGINES = {"transformers": "Transformers", "vllm": "vLLM"}


def recognises(raw: Mapping[str, object]) -> bool:
    """Say whether it is a decode benchmark."""
    return raw.get("kind") == "sere-bench-decode"


def read(text: str, name: str, sha256: str) -> Source:
    """Parse it."""
    record = DecodeRecord.model_validate_json(text)
    rows = made(record.provenance, model=record.model, artifact=record.artifact)
    if record.stand_in:
        rows["model"] = record.stand_in
    if len(record.runs) > 1:
        rows["runs"] = "; ".join(f"{run.created}: {' '.join(run.command)}" for run in record.runs)
    if record.environment:
        rows["environment"] = ", ".join(f"{key}={value}" for key, value in record.environment.items())
    return Source(
        name=name,
        kind=f"decoding in {ENGINES[record.engine]}",
        sha256=sha256,
        record=record,
        made=rows,
        model=None if record.stand_in else record.model,
        stand_in=record.stand_in,
        artifact=record.artifact,
        findings=tuple(_findings(record, name)),
    )


def _findings(record: DecodeRecord, name: str) -> Iterator[Finding]:
    for each in record.results:
        before = _before(record, each.batch_size)
        yield Finding(
            source=name,
            policy=each.variant,
            load=f"batch {each.batch_size}",
            batch=each.batch_size,
            stand_in=bool(record.stand_in),
            experts=before if each.experts is None else each.experts.after,
            before=before if each.experts is None else each.experts.before,
            speed=value_of(each.ratio),
        )


def _before(record: DecodeRecord, size: int) -> float | None:
    """Distinct experts of the unmodified model, as the control counted them."""
    return next(
        (
            each.experts.before
            for each in record.results
            if (each.variant, each.batch_size) == ("none", size) and each.experts is not None
        ),
        None,
    )


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:
    """Draw one table a batch size with its speed-ups, and distinct experts by layer at the largest."""
    record: DecodeRecord = source.record
    anchor = f"decode-{source.sha256[:6]}"
    sizes = list(dict.fromkeys(each.batch_size for each in record.results))
    blocks: list[Block] = [Text(_opening(source, record))]
    charts: list[Chart] = []
    for size in sizes:
        found = [each for each in record.results if each.batch_size == size]
        blocks.append(_table(found, _before(record, size), letters))
        rows = [
            (each.variant, letters.get(each.variant, each.variant), Value(r.median, r.low, r.high))
            for each in found
            if each.variant != "unmodified" and (r := each.ratio)
        ]
        title = f"Speed in {ENGINES[record.engine]} at batch {size}"
        charts.append(dots(rows, f"{anchor}-{size}", title=title, across="speed over unmodified"))
    blocks.append(Charts([*charts, *_layers(record, sizes[-1], letters, anchor)]))
    return [Section(anchor, f"Decoding in {ENGINES[record.engine]} ({source.name})", blocks)]


def _opening(source: Source, record: DecodeRecord) -> str:
    text = (
        f"{plural(len(record.rounds), 'round')}; in each, every variant decoded the same prompts of "
        f"{record.config['prompt_tokens']} tokens once, {record.config['steps']} timed steps, the order "
        "turning from round to round. Figures are medians over rounds, with least and greatest."
    )
    if source.stand_in:
        text += f" The model is a stand-in, {source.stand_in}: it says nothing about quality."
    return text


def _table(found: Sequence[DecodeResult], before: float | None, letters: Mapping[str, str]) -> Table:
    rows = [
        [
            each.variant,
            letters.get(each.variant, ""),
            _experts(each, before),
            speedup(value_of(each.ratio)),
            interval(value_of(each.tokens_per_second), 1),
            interval(value_of(each.step_ms), 1),
        ]
        for each in found
    ]
    columns = ["policy", "in pictures", "experts read", "speed-up (range)", "tokens/s", "ms a step"]
    return Table(f"batch {found[0].batch_size}", columns, rows, code=True)


def _experts(each: DecodeResult, before: float | None) -> str:
    after = before if each.experts is None else each.experts.after
    return number(after) + (f" ({percent(after / before, 0)})" if after is not None and before else "")


def _layers(record: DecodeRecord, size: int, letters: Mapping[str, str], anchor: str) -> list[Chart]:
    lines = {
        each.variant: [layer.after for layer in each.experts.layers]
        for each in record.results
        if each.batch_size == size and each.experts is not None and len(each.experts.layers) > 1
    }
    if not lines:
        return []
    names = next(each.experts.layers for each in record.results if each.experts is not None)
    numbers = [next((p for p in layer.name.split(".") if p.isdigit()), layer.name) for layer in names]
    title = f"Distinct experts by layer at batch {size}"
    up = "distinct experts a step"
    return [by_layer(lines, numbers, f"{anchor}-layers", title=title, up=up, letters=letters)]
