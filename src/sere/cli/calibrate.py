"""``sere calibrate``: measure once how alike a model's experts are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
import typer

from sere.artifact import METRICS, Artifact
from sere.calibration import CalibrationConfig, load_texts
from sere.cli.calibrating import Display, Request, finished, held, leads, measure
from sere.cli.inspect_json import as_dict
from sere.cli.inspect_tables import facts, sentences, show
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
from sere.inspection import inspect, words


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
    routed_moments: Annotated[
        bool,
        typer.Option(
            "--routed-moments",
            help="Sum moments over routed tokens too, as exfold needs them; no extra forward.",
        ),
    ] = False,
    norm_predictor: Annotated[
        bool,
        typer.Option(
            "--norm-predictor",
            help="Fit what predicts an output's length from the layer's input, as base needs it.",
        ),
    ] = False,
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Load the whole model, for one that cannot be streamed.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw away what an interrupted run has finished.")
    ] = False,
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
    is small: four matrices a layer, and five more with --routed-moments.

    A checkpoint folder is read one decoder layer at a time, so it may be larger
    than memory; how much is needed is said first. An interrupted run goes on
    where it was when the same command is given again. Under torchrun the
    processes share the texts, each on a GPU of its own if there is one.
    """
    config = CalibrationConfig(
        sequences=sequences,
        sequence_length=length,
        batch_sequences=batch_sequences,
        metrics=tuple(metric) if metric else ("frobenius", "cosine"),
        seed=seed,
        chunk_tokens=chunk_tokens,
        routed_moments=routed_moments,
        norm_predictor=norm_predictor,
    )
    if leads():
        check_output(out, force)
    texts = load_texts(data, field=field)
    if threads:
        torch.set_num_threads(threads)
    with held(out), Display(quiet=as_json or not leads()) as display:
        artifact = measure(
            Request(model, out, config, dtype, device, trust_remote_code, in_memory, restart),
            texts,
            "sample" if data == "sample" else Path(data).name,
            display,
        )
        if not leads():
            return
        artifact.save_pretrained(out)
        finished(out)
    if as_json:
        typer.echo(json.dumps(as_dict(artifact), indent=2))
        return
    facts(artifact)
    views = inspect(artifact)
    show(views, brief=True)
    sentences(words.of_layers(views))
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
