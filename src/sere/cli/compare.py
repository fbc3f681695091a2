"""``sere compare``: policies against the unmodified model, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import torch
import typer
from rich.console import Console
from rich.text import Text

from sere.artifact import Artifact
from sere.calibration import load_texts
from sere.cli.loading import load
from sere.cli.options import DeviceOption, DtypeOption, JsonOption, ModelArgument, ThreadsOption, TrustOption
from sere.cli.output import console, plain
from sere.errors import DataError

if TYPE_CHECKING:
    from sere.evaluation import ComparisonRecord


def command(
    model: ModelArgument,
    artifact: Annotated[
        str | None,
        typer.Argument(metavar="[ARTIFACT]", help="Artifact of the model; not needed for none and top_k."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", "-p", help="NAME:key=value,...; repeatable. Default: sere:top_s=2 and sere:top_s=1."
        ),
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option("--batch-size", "-b", help="Live sequences; repeatable. Default: 1 4 16 64."),
    ] = None,
    mode: Annotated[
        Literal["real", "proxy"],
        typer.Option(
            help="real decodes step by step; proxy takes the same decisions in one parallel forward."
        ),
    ] = "real",
    data: Annotated[
        str | None,
        typer.Option(help="Held-out texts (text, .jsonl, .parquet); the bundled ones if left out."),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(help="'bundled' (for the bundled model) or a .jsonl file with prompt and answer."),
    ] = None,
    field: Annotated[
        str, typer.Option(help="Field or column with the text, for --data in .jsonl and .parquet.")
    ] = "text",
    sequences: Annotated[
        int, typer.Option(help="Held-out sequences: in full batches, at least one, at most 16 of them.")
    ] = 64,
    length: Annotated[int, typer.Option(help="Tokens of a held-out sequence.")] = 128,
    speed_rounds: Annotated[int, typer.Option(help="Rounds of the speed measurement; 0 leaves it out.")] = 5,
    metric: Annotated[
        str | None, typer.Option(help="Similarity to use; the artifact's default if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice of texts and of the intervals.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the JSON record.")] = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    trust_remote_code: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure what policies save and cost on MODEL, next to the unmodified model and the no-op policy.

    For every batch size: distinct experts read per layer and step, KL divergence
    and top-1 agreement with the unmodified model, perplexity change, exact match
    on tasks, decode speed.
    """
    from sere.cli.tables import comparison_tables
    from sere.evaluation import CompareConfig, compare
    from sere.evaluation.compare import plan, task_examples
    from sere.evaluation.files import check_file

    policies = policy or ["sere:top_s=2", "sere:top_s=1"]
    config = CompareConfig(
        batch_sizes=tuple(batch_size or (1, 4, 16, 64)),
        mode=mode,
        sequences=sequences,
        sequence_length=length,
        tasks=tasks if tasks is not None or model != "demo" else "bundled",
        speed_rounds=speed_rounds,
        seed=seed,
    )
    statistics = None if artifact is None else Artifact.from_pretrained(artifact)
    # Whatever can be refused without the model is, before it is loaded.
    plan(statistics, policies, metric)
    task_examples(config)
    texts = None if data is None else load_texts(data, field=field)
    if out is not None:
        check_file(out)
    if threads:
        torch.set_num_threads(threads)
    loaded, tokenizer = load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    with Console(stderr=True).status("starting") as status:
        record = compare(
            loaded,
            tokenizer,
            statistics,
            policies,
            config,
            texts=texts,
            metric=metric,
            progress=lambda text: status.update(Text(text)),
        )
    unwritten = _save(record, out)
    if as_json:
        typer.echo(record.model_dump_json(indent=2))
    else:
        for table in comparison_tables(record):
            console().print(table)
    if unwritten is not None:
        raise unwritten
    if out is not None and not as_json:
        plain(console(), f"Record: {out}")


def _save(record: ComparisonRecord, out: Path | None) -> DataError | None:
    """Write the record; give back why it cannot be, so that hours of work are at least printed."""
    try:
        if out is not None:
            record.save(out)
    except DataError as error:
        return error
    return None
