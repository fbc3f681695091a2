"""``sere calibrate``: measure once how alike a model's experts are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from sere.artifact import METRICS, Artifact
from sere.calibration import CalibrationConfig, Progress, load_texts
from sere.cli.inspect import as_dict, show
from sere.cli.loading import DEMO, load
from sere.cli.options import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelArgument,
    OutOption,
    ThreadsOption,
    TrustOption,
)
from sere.cli.output import console, plain, shell
from sere.errors import ArtifactError
from sere.evaluation.files import check_writable


def command(
    model: ModelArgument,
    out: OutOption,
    data: Annotated[
        str, typer.Option(help="Text, .jsonl or .parquet file; 'sample' is the bundled sample.")
    ] = "sample",
    field: Annotated[
        str, typer.Option(help="Field or column with the text, for .jsonl and .parquet.")
    ] = "text",
    sequences: Annotated[int, typer.Option(help="Sequences to calibrate on.")] = 400,
    length: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 128,
    batch_sequences: Annotated[
        int, typer.Option(help="Sequences of a batch; similarities are means over batches.")
    ] = 16,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Similarity to compute, the default first; repeatable. One of: {', '.join(METRICS)}."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice of texts.")] = 0,
    chunk_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens whose expert outputs are held at once; lower it to save memory."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an artifact that is there already.")
    ] = False,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    trust_remote_code: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how alike the experts of every MoE layer of MODEL are, and write an artifact.

    All experts run on all calibration tokens, once. The default, 400 sequences
    of 128 tokens and the Frobenius similarity, is the SERE paper's. The artifact
    is small: four matrices a layer.
    """
    from sere.calibration import calibrate

    config = CalibrationConfig(
        sequences=sequences,
        sequence_length=length,
        batch_sequences=batch_sequences,
        metrics=tuple(metric) if metric else ("frobenius", "cosine"),
        seed=seed,
        chunk_tokens=chunk_tokens,
    )
    check_output(out, force)
    texts = load_texts(data, field=field)
    if threads:
        torch.set_num_threads(threads)
    loaded, tokenizer = load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    with _Display(quiet=as_json) as display:
        artifact = calibrate(
            loaded,
            tokenizer,
            texts,
            config=config,
            progress=display.update,
            model_id=None if model == DEMO else model,
            data_name="sample" if data == "sample" else Path(data).name,
        )
    artifact.save_pretrained(out)
    if as_json:
        typer.echo(json.dumps(as_dict(artifact), indent=2))
        return
    show(artifact)
    following = shell("sere", "compare", model, out, "--policy", "sere:top_s=2")
    plain(console(), f"\nWritten to {out}. Next: {following}")


def check_output(out: Path, force: bool) -> None:
    """Refuse, before any work is done, an output that cannot or should not be written.

    Raises:
        ArtifactError: If ``out`` is a file, or holds an artifact and not ``force``.
        DataError: If it cannot be written to.

    """
    if out.exists() and not out.is_dir():
        raise ArtifactError(f"{out} is a file. Name a folder with --out.")
    if Artifact.exists_in(out) and not force:
        raise ArtifactError(
            f"{out} holds an artifact already. Choose another folder, or add --force to replace it."
        )
    check_writable(out)


class _Display:
    """A progress bar with the speed and the time left, on standard error."""

    def __init__(self, quiet: bool) -> None:
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            disable=quiet,
        )
        self.task: TaskID = self.bar.add_task("calibrating", total=1.0, left="")

    def __enter__(self) -> _Display:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, state: Progress) -> None:
        """Show one more layer done."""
        left = f"{state.seconds_left:.0f} s left, {state.tokens_per_second:,.0f} tokens/s"
        label = f"batch {state.batch + 1}/{state.batches}, layer {state.layers_done}/{state.layers}"
        self.bar.update(self.task, completed=state.fraction, description=label, left=left)
