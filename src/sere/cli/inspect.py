"""``sere inspect``: what an artifact holds."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any

import typer

from sere.artifact import Artifact
from sere.calibration import summarise
from sere.cli.options import ArtifactArgument, JsonOption
from sere.cli.output import console, plain, titled


def command(
    artifact: ArtifactArgument,
    metric: Annotated[
        str | None, typer.Option(help="Similarity to show; the artifact's default if left out.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what an artifact was made for and how alike each layer's experts are.

    The artifact is validated as it is when an engine loads it: exit code 0 means that it is whole.
    """
    loaded = Artifact.from_pretrained(artifact)
    if as_json:
        typer.echo(json.dumps(as_dict(loaded, metric), indent=2))
    else:
        show(loaded, metric)


def as_dict(artifact: Artifact, metric: str | None = None) -> dict[str, Any]:
    """Return the manifest, the hash and the summary of every layer."""
    return {
        "hash": artifact.hash,
        "manifest": artifact.manifest.model_dump(mode="json"),
        "layers": [dataclasses.asdict(layer) for layer in summarise(artifact, metric=metric)],
    }


def show(artifact: Artifact, metric: str | None = None) -> None:
    """Print the artifact for a reader."""
    out = console()
    made = artifact.manifest.calibration
    facts = {
        "model": f"{artifact.model.id} ({artifact.model.architecture})",
        "made": f"{made.source}, {made.sequences} x {made.sequence_length} tokens of {made.data}, "
        f"seed {made.seed}",
        "similarities": ", ".join(artifact.metrics),
        "hash": artifact.hash[:16],
    }
    if artifact.operating_points:
        facts["operating points"] = ", ".join(
            f"{name} = {point.policy}" for name, point in artifact.operating_points.items()
        )
    for name, value in facts.items():
        out.print(f"[bold]{name:17}[/bold]", end="")
        plain(out, value)
    table = titled(f"{metric or artifact.default_metric} similarity of experts, by layer")
    for heading in ("layer", "experts", "mean", "least", "greatest"):
        table.add_column(heading, justify="right")
    table.add_column("most alike pairs")
    table.add_column("hardest to replace\n(best similarity)")
    for layer in summarise(artifact, metric=metric):
        table.add_row(
            str(layer.index),
            str(layer.num_experts),
            *(f"{value:.3f}" for value in (layer.mean, layer.lowest, layer.highest)),
            ", ".join(f"{left}-{right}" for left, right, _ in layer.pairs),
            ", ".join(f"{expert} ({best:.3f})" for expert, best in layer.critical),
        )
    out.print(table)
