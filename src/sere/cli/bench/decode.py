"""``sere bench decode``: decoding at fixed batch sizes, offline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from rich.console import Console
from rich.text import Text
from torch import Tensor

from sere.artifact import Artifact
from sere.calibration import load_texts
from sere.cli.bench.model import Found, model_for
from sere.cli.bench.tables import decode_tables
from sere.cli.loading import load, load_tokenizer
from sere.cli.options import DeviceOption, Dtype, DtypeOption, JsonOption, ThreadsOption, TrustOption
from sere.cli.output import console, plain
from sere.errors import DataError

if TYPE_CHECKING:
    from sere.bench.decode import DecodeConfig, EngineName
    from sere.bench.decode.engine import Engine
    from sere.bench.subject import Subject

DEFAULTS = ("sere:top_s=2", "sere:top_s=1")


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Checkpoint folder, Hub name, 'demo', or 'stand-in'.")
    ],
    artifact: Annotated[
        str | None,
        typer.Argument(
            metavar="[ARTIFACT]",
            help="Folder that `sere calibrate` wrote, or a Hub name; default: beside the weights.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="NAME:key=value,... or an operating point; repeatable. "
            "Default: sere:top_s=2 and sere:top_s=1.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", "-e", help="What decodes: transformers or vllm.")
    ] = "transformers",
    batch_size: Annotated[
        list[int] | None,
        typer.Option("--batch-size", "-b", help="Live sequences; repeatable. Default: 1 4 16 64."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="In each, every variant decodes once; the spread is theirs.")
    ] = 5,
    steps: Annotated[int, typer.Option(help="Timed decoding steps of a variant in a round.")] = 32,
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of a prompt; its prefill is not timed.")] = 32,
    warmup: Annotated[int, typer.Option(help="Steps before the clock starts, in each turn.")] = 2,
    data: Annotated[
        str | None,
        typer.Option(help="Texts (text, .jsonl, .parquet); the bundled held-out ones if left out."),
    ] = None,
    field: Annotated[
        str, typer.Option(help="Field or column with the text, for --data in .jsonl and .parquet.")
    ] = "text",
    seed: Annotated[int, typer.Option(help="Of the choice of texts, and of sampling in vLLM.")] = 0,
    metric: Annotated[
        str | None, typer.Option(help="Similarity to use; the artifact's default if left out.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of this benchmark; started again, it goes on there.")
    ] = Path("runs/bench-decode"),
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    trust_remote_code: TrustOption = False,
    llm: Annotated[
        str, typer.Option(help="Further arguments of vLLM's LLM as JSON: --llm '{\"enforce_eager\": true}'.")
    ] = "{}",
    layers: Annotated[int, typer.Option(help="Layers of the stand-in, 1.3 GB each.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Time decoding at fixed batch sizes: unmodified, none, and each policy, in turns.

    In every round each variant decodes the same prompts once; the order turns
    from round to round, so that a drift of the machine meets all alike. Shown
    are the time of a step, tokens a second, the speed over the unmodified model
    in the same round, and distinct experts: medians over rounds, with least and
    greatest. The machine should be idle.

      sere bench decode MODEL ARTIFACT -b 1 -b 16
      sere bench decode stand-in --engine vllm --dtype float32 -b 16

    Transformers decodes a known text, the same for all variants; vLLM samples
    with fixed seeds. Writes bench.json, the record for `sere report`, into
    --out. Each round is kept as soon as it is complete: after an interrupt the
    same command goes on with the next one.
    """
    from sere.bench.decode import DecodeConfig, run_decode
    from sere.bench.subject import Subject
    from sere.evaluation.files import check_writable

    config = DecodeConfig(
        batch_sizes=tuple(batch_size or (1, 4, 16, 64)),
        rounds=rounds,
        steps=steps,
        prompt_tokens=prompt_tokens,
        warmup=warmup,
        seed=seed,
    )
    name = _engine(engine, device)
    options = _options(llm, name, dtype, trust_remote_code)
    given = None if data is None else load_texts(data, field=field)
    check_writable(out)
    if threads:
        torch.set_num_threads(threads)
    with Console(stderr=True).status("starting") as status, model_for(model, layers, out) as found:
        subject = Subject.of(found.source, policy or DEFAULTS, place=artifact, metric=metric, **found.known)

        def start() -> Engine:
            if name == "vllm":
                from sere.bench.decode.vllm import VllmEngine

                return VllmEngine(subject, config, options)
            return _transformers(model, found, subject, config, dtype, device, trust_remote_code)

        record = run_decode(
            subject,
            config,
            out,
            name,
            start,
            lambda size: _texts(found, model, size, given, config, trust_remote_code),
            options=options,
            progress=lambda text: status.update(Text(text)),
        )
    if as_json:
        typer.echo(record.model_dump_json(indent=2))
        return
    for table in decode_tables(record):
        console().print(table)
    plain(console(), f"Record: {out / 'bench.json'}")


def _engine(engine: str, device: str) -> EngineName:
    """See that the engine is known and here."""
    if engine == "vllm":
        from sere.engines.vllm.plain import require_vllm

        if device != "auto":
            raise DataError("--device is for Transformers; vLLM takes the device it was built for.")
        require_vllm()
        return "vllm"
    if engine == "transformers":
        return "transformers"
    raise DataError(f"no engine {engine!r}. Choose transformers or vllm.")


def _options(llm: str, engine: EngineName, dtype: Dtype, trust_remote_code: bool) -> dict[str, Any]:
    """Arguments of ``vllm.LLM`` that the command line sets."""
    try:
        given = json.loads(llm)
    except ValueError as error:
        raise DataError(f"--llm is no JSON: {error}. Write --llm '{{\"enforce_eager\": true}}'.") from error
    if not isinstance(given, dict) or "additional_config" in given:
        raise DataError("--llm takes a JSON object, without additional_config: the benchmark sets that.")
    if engine == "transformers":
        if given:
            raise DataError("--llm is for --engine vllm. Leave it out.")
        return {"dtype": dtype}
    return {"dtype": dtype, **({"trust_remote_code": True} if trust_remote_code else {}), **given}


def _transformers(
    model: str,
    found: Found,
    subject: Subject,
    config: DecodeConfig,
    dtype: Dtype,
    device: str,
    trust_remote_code: bool,
) -> Engine:
    from sere.bench.decode.transformers import TransformersEngine

    source = found.source if found.random else model
    loaded, _ = load(source, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    place = subject.place
    if place is None and Path(found.source).is_dir() and Artifact.exists_in(found.source):
        place = found.source
    held = None if place is None else Artifact.from_pretrained(place)
    return TransformersEngine(loaded, held, subject.variants, config, subject.metric)


def _texts(
    found: Found,
    model: str,
    size: int,
    given: Sequence[str] | None,
    config: DecodeConfig,
    trust_remote_code: bool,
) -> Tensor:
    """Sequences for a batch; random ones for random weights, whose tokenizer knows no words."""
    from sere.bench.decode.texts import random_sequences
    from sere.demo.data import heldout_texts
    from sere.evaluation.tokens import heldout_sequences

    if found.random:
        return random_sequences(found.source, size, config.length, config.seed)
    tokenizer = load_tokenizer(model, trust_remote_code=trust_remote_code)
    texts = heldout_texts() if given is None else given
    return heldout_sequences(tokenizer, texts, size, config.length, config.seed)
