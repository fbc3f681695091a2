"""``sere serve``: ``vllm serve`` with the policy filled in."""

from __future__ import annotations

import signal
from typing import Annotated, Any

import typer

from sere.cli.loading import resolve
from sere.engines.vllm.serve import run
from sere.engines.vllm.settings import Settings
from sere.errors import EngineError

CONTEXT: dict[str, Any] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": ["--help"],  # -h alone would eat the h of vLLM's own short options
}


def command(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Checkpoint folder, Hub name, or 'demo'. It comes first.")
    ],
    artifact: Annotated[
        str | None,
        typer.Option(help="Folder that `sere calibrate` wrote, or a Hub name; default: beside the weights."),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="NAME:key=value,..., or an operating point of the artifact.")
    ] = "sere",
    metric: Annotated[
        str | None, typer.Option(help="Similarity to serve; the artifact's default if left out.")
    ] = None,
    counting: Annotated[bool, typer.Option(help="Count what happens, for /metrics and the log.")] = True,
) -> None:
    """Serve MODEL with vLLM, re-routed; every other option goes to `vllm serve` as it is.

    The same as `vllm serve MODEL --additional-config '{"sere": {...}}' ...`.
    See that it works with `sere doctor --url http://localhost:8000`.
    """
    if model.startswith("-"):
        raise EngineError(f"MODEL comes first, got {model!r}. Write: sere serve MODEL [options].")
    settings: dict[str, Any] = {"policy": policy}
    if artifact is not None:
        settings["artifact"] = artifact
    if metric is not None:
        settings["metric"] = metric
    if not counting:
        settings["counting"] = False
    Settings.read(settings)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # vLLM ends its processes in its own way
    run(resolve(model), settings, context.args)
