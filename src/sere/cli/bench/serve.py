"""``sere bench serve``: a server under load, for each variant a fresh one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from sere.cli.bench.model import model_for
from sere.cli.bench.tables import served_tables
from sere.cli.options import JsonOption
from sere.cli.output import console, plain

DEFAULTS = ("sere:top_s=2", "sere:top_s=1")


def command(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Checkpoint folder, Hub name, 'demo', or 'stand-in'."),
    ],
    artifact: Annotated[
        str | None,
        typer.Option(help="Folder that `sere calibrate` wrote, or a Hub name; default: beside the weights."),
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
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of this benchmark; started again, it goes on there.")
    ] = Path("runs/bench-serve"),
    preset: Annotated[
        Literal["paper"] | None,
        typer.Option(help="paper: 128 tokens in, 32 out, at 8, 16, 24 and 32 requests a second."),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            "--rate", "-r", help="Requests a second, 'inf' for all at once; repeatable. Default: 1 4 16."
        ),
    ] = None,
    repetitions: Annotated[int, typer.Option(help="Each on fresh servers; the spread is over them.")] = 3,
    input_tokens: Annotated[int | None, typer.Option(help="Tokens of a prompt. Default: 128.")] = None,
    output_tokens: Annotated[int | None, typer.Option(help="Tokens of an answer. Default: 128.")] = None,
    seconds: Annotated[float, typer.Option(help="Length of a load; its requests are rate x seconds.")] = 60,
    requests: Annotated[int | None, typer.Option(help="Requests of a load, in place of --seconds.")] = None,
    slo: Annotated[
        str,
        typer.Option(
            "--slo",
            help="Objective for goodput, in ms of a request: ttft:2000,tpot:100; e2el is known too.",
        ),
    ] = "",
    warmup: Annotated[int, typer.Option(help="Requests sent at once to a fresh server, not measured.")] = 16,
    temperature: Annotated[
        float,
        typer.Option(help="Of sampling. At 0 random prompts run into loops whose rows share their experts."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of prompts and arrivals, the same for every variant.")] = 0,
    metric: Annotated[
        str | None, typer.Option(help="Similarity to serve; the artifact's default if left out.")
    ] = None,
    server: Annotated[
        str, typer.Option(help="Options of `vllm serve` for all variants: --server '--max-model-len 2048'.")
    ] = "",
    load: Annotated[
        str, typer.Option(help="Further options of `vllm bench serve`: --load '--burstiness 2'.")
    ] = "",
    start_timeout: Annotated[float, typer.Option(help="Seconds that a server may take to start.")] = 1800,
    layers: Annotated[int, typer.Option(help="Layers of the stand-in, 1.3 GB each.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Load a vLLM server at several request rates: unmodified, none, and each policy, side by side.

    Repetition by repetition every variant gets a fresh server on a free port: it
    is started, waited for, warmed up, loaded by `vllm bench serve` at every rate
    and stopped. Shown are TTFT, TPOT and ITL, throughput, goodput under an
    objective (--slo), and the distinct experts that the server counted before
    and after re-routing: the proof that it was on. Medians over repetitions, with
    least and greatest.

      sere bench serve MODEL --artifact DIR --preset paper --slo tpot:50
      sere bench serve stand-in -r 1 -r 2 -r 4 --output-tokens 64

    Writes bench.json (the record, for `sere report`), the load generator's own
    files in results/, and every log in logs/. Each load is kept as soon as it is
    measured: after an interrupt the same command goes on with the next one.
    """
    from sere.bench.served import PRESETS, ServedConfig, Subject, read_objective, run_served
    from sere.engines.vllm.plain import require_vllm
    from sere.engines.vllm.settings import Settings
    from sere.evaluation.files import check_writable

    policies = policy or list(DEFAULTS)
    settings: dict[str, Any] = dict(PRESETS[preset]) if preset else {}
    given = {"rates": tuple(rate or ()), "input_tokens": input_tokens, "output_tokens": output_tokens}
    settings |= {name: value for name, value in given.items() if value}
    config = ServedConfig(
        **settings,
        repetitions=repetitions,
        seconds=seconds,
        requests=requests,
        objective=read_objective(slo),
        warmup=warmup,
        temperature=temperature,
        seed=seed,
        server=tuple(shlex.split(server)),
        load=tuple(shlex.split(load)),
        start_seconds=start_timeout,
    )
    require_vllm()
    for each in policies:
        Settings.read({"policy": each})
    check_writable(out)
    with Console(stderr=True).status("starting") as status, model_for(model, layers, out) as found:
        subject = Subject.of(found.source, policies, place=artifact, metric=metric, **found.known)
        record = run_served(subject, config, out, lambda text: status.update(Text(text)))
    if as_json:
        typer.echo(record.model_dump_json(indent=2))
        return
    for table in served_tables(record):
        console().print(table)
    plain(console(), f"Record: {out / 'bench.json'}")
