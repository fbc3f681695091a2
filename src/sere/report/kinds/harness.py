"""The record of ``sere eval``: tasks of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sere.evaluation.harness.record import Average, EvalRecord, Paired, TaskResult
from sere.report.blocks import Block, Charts, Section, Table, Text
from sere.report.charts.dots import dots
from sere.report.finding import Finding, Value
from sere.report.form import MISSING, called, interval, number, percent, plural
from sere.report.made import made
from sere.report.source import Source

_ENGINES = {"transformers": "Transformers", "hf": "Transformers", "vllm": "vLLM"}
SURE = 0.05
SMALL_P = 0.001
EMPTY = 0.9
"""Below this share of the batch size a live batch is worth a word."""


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether it is an evaluation."""
    return raw.get("kind") == "sere-eval"


def read(text: str, name: str, sha256: str) -> Source:
    """Parse it."""
    record = EvalRecord.model_validate_json(text)
    rows = made(record.provenance, model=record.model, artifact=record.artifact, seconds=record.seconds)
    if len(record.runs) > 1:
        rows["runs"] = "; ".join(f"{run.created}: {' '.join(run.command)}" for run in record.runs)
    rows["settings"] = ", ".join(
        f"{key.replace('_', ' ')}: {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in record.config.items()
        if value not in (None, [], {})
    )
    for file in record.read:
        rows[f"read: {file.policy}"] = (
            f"{file.file}, SHA-256 {file.sha256[:12]}, {file.config.get('model_args')}"
        )
    return Source(
        name=name,
        kind="evaluation by tasks",
        sha256=sha256,
        record=record,
        made=rows,
        model=record.model,
        artifact=record.artifact,
        findings=tuple(_findings(record, name)),
    )


def _findings(record: EvalRecord, name: str) -> Iterator[Finding]:
    width = next((r.experts.of for r in record.results if r.experts is not None), None)
    for each in record.averages:
        before = next((a.before for a in _at(record, each.batch_size) if a.before is not None), None)
        plain = each.policy == "unmodified"
        yield Finding(
            source=name,
            policy=each.policy,
            load=f"batch {each.batch_size}",
            batch=each.batch_size,
            experts=before if plain else each.experts,
            before=before if plain else each.before,
            of=width,
            tasks=_score(each),
            kept=1.0 if plain else None if each.paired is None else each.paired.retained,
        )


def _at(record: EvalRecord, size: int) -> list[Average]:
    return [average for average in record.averages if average.batch_size == size]


def _score(average: Average) -> Value:
    """Give a policy's mean with the interval of its difference from the unmodified model's."""
    pair = average.paired
    if pair is None:
        return Value.of(average.value)
    low, high = pair.difference_interval
    return Value(average.value, pair.reference + low, pair.reference + high)


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:
    """Draw, for each batch size, what is retained over all tasks, and every task by itself."""
    record: EvalRecord = source.record
    anchor = f"eval-{source.sha256[:6]}"
    blocks: list[Block] = [Text(_opening(record))]
    for size in record.batch_sizes:
        blocks += _averages(record, size, letters, f"{anchor}-{size}")
        blocks += [_tasks(record, size), *_notes(record, size)]
    return [
        Section(anchor, f"Tasks of lm-evaluation-harness: {called(record.model.id)} ({source.name})", blocks)
    ]


def _opening(record: EvalRecord) -> str:
    own = record.provenance.versions.get("lm_eval", "")
    version = record.read[0].versions.get("lm_eval_version", "") if record.read else own
    tasks = len({result.task for result in record.results})
    text = (
        f"{plural(tasks, 'task')} of lm-evaluation-harness {version}, run through "
        f"{_ENGINES.get(record.engine, record.engine)} with the same prompts, seeds and number of live "
        "sequences for every policy. The unmodified model and each policy answer the same examples, so their "
        "difference is known better than two scores side by side tell."
    )
    if record.config.get("limit"):
        text += f" Only the first {record.config['limit']} examples of each task were taken."
    return text


def _averages(record: EvalRecord, size: int, letters: Mapping[str, str], name: str) -> list[Block]:
    own = _at(record, size)
    if not own:
        return []
    parts = list(own[0].parts)
    what = parts[0] if len(parts) == 1 else f"mean over {', '.join(parts)}"
    columns = [
        "policy",
        "in pictures",
        "experts read",
        "score",
        "retained (95%)",
        "difference (95%)",
        "lost / gained",
        "p",
    ]
    rows = [
        [
            each.policy,
            letters.get(each.policy, ""),
            _experts(each),
            percent(each.value),
            *_cells(each.paired),
        ]
        for each in own
    ]
    note = (
        "Retained and difference: against the unmodified model on the same examples, bootstrap over "
        "examples. Lost and gained: examples that only the unmodified model solved, and only the policy. p: "
        "McNemar's exact test, not corrected for the number of policies looked at."
    )
    table = Table(f"{what}, {size} live sequences", columns, rows, note=note, code=True)
    kept = [
        (each.policy, letters.get(each.policy, each.policy), _retained(each.paired))
        for each in own
        if each.paired is not None and each.paired.retained is not None
    ]
    if not kept:
        return [table]
    picture = dots(
        kept, name, title=f"Retained of the unmodified score at batch {size}", across="share retained"
    )
    return [table, Charts([picture])]


def _retained(pair: Paired) -> Value:
    return Value.of(pair.retained or 0.0, pair.retained_interval)


def _experts(average: Average) -> str:
    if average.experts is None or not average.before:
        return MISSING
    return f"{number(average.experts)} ({percent(average.experts / average.before, 0)})"


def _cells(pair: Paired | None) -> list[str]:
    if pair is None:
        return [MISSING] * 4
    return [
        MISSING if pair.retained is None else interval(_retained(pair), 1, share=True),
        interval(Value.of(pair.difference, pair.difference_interval), 1, share=True, sign=True),
        MISSING if pair.lost is None else f"{pair.lost} / {pair.gained}",
        _p(pair.p_value),
    ]


def _p(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"<{SMALL_P}" if value < SMALL_P else number(value, 3)


def _tasks(record: EvalRecord, size: int) -> Table:
    policies = list(dict.fromkeys(result.policy for result in record.at(size)))
    rows: dict[str, dict[str, TaskResult]] = {}
    for result in record.at(size):
        rows.setdefault(result.task, {})[result.policy] = result
    cells = [
        [task, str(next(iter(found.values())).examples), *(_figure(found.get(policy)) for policy in policies)]
        for task, found in rows.items()
    ]
    note = (
        f"* p under {SURE} by McNemar's exact test, each task looked at by itself: of twenty tasks without a "
        "difference one gets a mark."
    )
    return Table(
        f"Score by task, {size} live sequences", ["task", "examples", *policies], cells, note=note, code=True
    )


def _figure(result: TaskResult | None) -> str:
    if result is None:
        return MISSING
    pair = result.paired
    mark = "*" if pair is not None and pair.p_value is not None and pair.p_value < SURE else ""
    share = 0 <= result.value <= 1 and result.metric.split(",")[0] in (
        "acc",
        "acc_norm",
        "exact_match",
        "pass@1",
    )
    return f"{percent(result.value) if share else number(result.value, 3)}{mark}"


def _notes(record: EvalRecord, size: int) -> list[Block]:
    """Say where the live batch ran empty, and where prompts were cut."""
    said: list[Block] = []
    lived = [result.mean_live for result in record.at(size) if result.steps]
    if lived and min(lived) < EMPTY * size:
        said.append(
            Text(
                f"The live batch held {number(min(lived))} to {number(max(lived))} sequences on average, not "
                f"{size} throughout: it runs empty at each task's end. Policies do less in smaller batches.",
                "note",
            )
        )
    cut = sum(result.cut for result in record.at(size, "unmodified"))
    if cut:
        said.append(
            Text(
                f"{plural(cut, 'prompt')} did not fit into the model's context and lost the beginning.",
                "note",
            )
        )
    return said
