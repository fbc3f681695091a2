"""``sere sweep``: every recipe over its own knob, at equal distinct experts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sere.artifact import Artifact, how_to_get
from sere.calibration import load_texts
from sere.cli.loading import load
from sere.cli.options import (
    ArtifactArgument,
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelArgument,
    ThreadsOption,
    TrustOption,
)
from sere.cli.output import console, plain
from sere.errors import DataError, MissingError
from sere.evaluation.sweep import files

if TYPE_CHECKING:
    from sere.demo.tasks import Example
    from sere.evaluation.sweep import Evaluator, SweepRecord
    from sere.evaluation.sweep.series import Series

SIZES = (1, 4, 8, 16, 32, 64)


def command(
    model: ModelArgument,
    artifact: ArtifactArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of this comparison; started again, it goes on there.")
    ] = Path("runs/sweep"),
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            "-r",
            help="NAME, or NAME:key=value,key=value/value/value to sweep another parameter than its knob; "
            "repeatable. Default: all recipes that ARTIFACT can serve, and SERE's threshold.",
        ),
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option("--batch-size", "-b", help="Live sequences; repeatable. Default: 1 4 8 16 32 64."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Texts or prompts (text, .jsonl, .parquet); the bundled held-out ones if left out."
        ),
    ] = None,
    field: Annotated[
        str, typer.Option(help="Field or column with the text, for --data in .jsonl and .parquet.")
    ] = "text",
    seeds: Annotated[int, typer.Option(help="Disjoint shares of the texts; intervals are over them.")] = 5,
    sequences: Annotated[
        int, typer.Option(help="Sequences of a share, at each batch size: whole batches, at least one.")
    ] = 16,
    length: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 96,
    prompt: Annotated[
        int, typer.Option(help="Leading tokens that are prompt: neither re-routed nor scored.")
    ] = 16,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="Exact match, too, decoded for real: 'bundled' (for the bundled model) or a .jsonl file "
            "with prompt and answer. Takes three settings of each series."
        ),
    ] = None,
    examples: Annotated[int, typer.Option(help="Bundled examples of each task, at most 100.")] = 20,
    at: Annotated[
        int, typer.Option(help="Batch size of --tasks, and of what other neighbours in a batch change.")
    ] = 16,
    metric: Annotated[
        str | None, typer.Option(help="Similarity to use; the artifact's default if left out.")
    ] = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    trust_remote_code: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare all recipes on MODEL at equal numbers of distinct experts, each swept over its own knob.

    Each setting runs at each batch size on each seed's share of your texts, in
    one parallel forward per batch that takes decoding's decisions: minutes where
    decoding would take hours. KL, top-1 agreement and perplexity are against the
    unmodified model.

    Writes sweep.json (the record), sweep.md (tables), sweep.svg and sweep.png
    (the picture, with the extra 'plot'). Every point is kept as soon as it is
    measured: after an interrupt, the same command goes on where it was.
    """
    from sere.evaluation.compare import task_examples
    from sere.evaluation.config import CompareConfig
    from sere.evaluation.files import check_writable
    from sere.evaluation.sweep import Evaluator, SweepConfig
    from sere.evaluation.sweep.run import check_sizes
    from sere.evaluation.sweep.series import chosen

    config = SweepConfig(seeds=seeds, sequences=sequences, sequence_length=length, prompt_tokens=prompt)
    sizes = tuple(batch_size or SIZES)
    statistics = Artifact.from_pretrained(artifact)
    layer = max(statistics.layers, key=lambda each: each.num_experts)
    series = chosen(recipe, layer.num_experts, layer.top_k, statistics)
    if recipe is None:
        _say_left_out(statistics)
    prompts = task_examples(CompareConfig(tasks=tasks, examples_per_task=examples))
    if at not in sizes:
        raise DataError(
            f"--at {at} is none of the batch sizes {', '.join(map(str, sizes))}. Give one of them."
        )
    texts = None if data is None else load_texts(data, field=field)
    check_writable(out)
    if threads:
        torch.set_num_threads(threads)
    loaded, tokenizer = load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    evaluator = Evaluator(
        loaded, tokenizer, statistics, texts, config, metric=metric, cache=out / files.POINTS
    )
    check_sizes(evaluator, sizes)
    record = _measure(evaluator, series, sizes, prompts, at, out)
    record.save(out / files.RECORD)
    if as_json:
        typer.echo(record.model_dump_json())
    _show(record, out, at, quiet=as_json)


def _say_left_out(artifact: Artifact) -> None:
    from sere.evaluation.sweep.series import served

    for name, lacking in served(artifact)[1].items():
        stored = f"left out: {name}, as the artifact stores no {', '.join(lacking)}."
        plain(Console(stderr=True), stored + how_to_get(lacking[0]))


def _measure(
    evaluator: Evaluator,
    series: Sequence[Series],
    sizes: Sequence[int],
    prompts: Sequence[Example],
    at: int,
    out: Path,
) -> SweepRecord:
    from sere.evaluation.sweep import beside
    from sere.evaluation.sweep.run import expected_seconds, sweep

    started, notes = time.monotonic(), Console(stderr=True)
    with notes.status("timing one point of each batch size"):
        minutes = expected_seconds(evaluator, series, sizes) / 60
    plain(
        notes,
        f"{len(series)} series, {sum(len(line.policies) for line in series)} settings, {len(sizes)} batch "
        f"sizes, {evaluator.config.seeds} seeds: what is not measured yet takes about {minutes:.0f} minutes",
    )
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=notes, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total)

        record = sweep(
            evaluator,
            series,
            sizes,
            progress=lambda text, done, total: bar.update(
                task, description=text, completed=done, total=total
            ),
        )
    with notes.status("other company") as status:
        record.company = beside.companies(evaluator, record, [at], out / files.COMPANY, status.update)
        if prompts:
            record.solutions = beside.solutions(
                evaluator, record, prompts, at, out / files.SOLUTIONS, status.update
            )
    record.seconds = time.monotonic() - started
    return record


def _show(record: SweepRecord, out: Path, at: int, *, quiet: bool) -> None:
    """Write tables and picture, print the tables, and say where everything is."""
    from sere.cli.tables import grid_table
    from sere.evaluation.files import write_text
    from sere.evaluation.sweep import plot, tables

    write_text(out / files.PAGE, tables.page(record))
    written = [out / files.RECORD, out / files.PAGE]
    grids = [tables.equal_experts(record), tables.winners(record), tables.front(record, at)]
    grids += [tables.companies(record)] * bool(record.company)
    grids += [tables.solutions(record)] * bool(record.solutions)
    if not quiet:
        for grid in grids:
            console().print(grid_table(grid))
    try:
        written += plot.draw(record, out)
    except MissingError as error:
        plain(Console(stderr=True), f"no picture: {error}")
    if not quiet:
        plain(console(), f"Written: {' '.join(map(str, written))}")
