"""``sere inspect``: what an artifact says of a model's experts, and how another artifact agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sere.artifact import Artifact
from sere.cli import inspect_against, inspect_json, inspect_maps, inspect_tables
from sere.cli.options import ArtifactArgument, JsonOption
from sere.cli.output import console, plain
from sere.errors import ArtifactError, DataError
from sere.inspection import THRESHOLDS, compare, inspect, words


def command(
    artifact: ArtifactArgument,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="OTHER", help="Another artifact of the same model, to compare this one with."
        ),
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            "--layer",
            "-l",
            metavar="N",
            help="Look at this decoder layer closely, with its heat map; repeatable, or 'all'.",
        ),
    ] = None,
    threshold: Annotated[
        list[float] | None,
        typer.Option(
            "--threshold",
            "-t",
            help="Similarity that a substitute must reach; names the critical experts. Repeatable. Default: "
            + ", ".join(f"{each:g}" for each in THRESHOLDS)
            + ".",
        ),
    ] = None,
    clusters: Annotated[
        int | None,
        typer.Option(help="Clusters in each layer; by default the similarities decide.", min=1),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="DIR", help="Draw heat maps as PNG files there (extra 'plot')."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Similarity to show; the artifact's default if left out.")
    ] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Allow --against an artifact of a model of another name.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what an artifact was made for, and what it says of each layer's experts.

    How alike they are, which stands in for which, which can never be replaced
    at a threshold (critical), and whether they form groups.

      sere inspect DIR                       all layers in figures
      sere inspect DIR --layer 3             one layer, with its heat map
      sere inspect DIR --png maps            pictures of all layers
      sere inspect DIR --against OTHER       does the calibration text matter?

    For the last, calibrate twice, on two texts, and compare: if OTHER chooses
    the same substitutes, or others that are as good, the text does not matter
    for your model.

    The artifact is validated as it is when an engine loads it: exit code 0
    means that it is whole.
    """
    loaded = Artifact.from_pretrained(artifact)
    other = Artifact.from_pretrained(against) if against is not None else None
    if mixed and other is None:
        raise DataError("--mixed is about a second artifact. Name it with --against.")
    layers = numbers(layer, loaded)
    thresholds = tuple(dict.fromkeys(threshold)) if threshold else THRESHOLDS
    views = inspect(loaded, metric=metric, layers=layers, thresholds=thresholds, number=clusters)
    beside = None
    if other is not None:
        beside = compare(loaded, other, metric=metric, layers=layers, thresholds=thresholds, mixed=mixed)
    pictures = []
    if png is not None:
        from sere.inspection.pictures import draw

        pictures = draw(png, loaded, views, other, beside)
    if as_json:
        document = inspect_json.as_dict(loaded, views, other, beside, pictures)
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    inspect_tables.facts(loaded)
    inspect_tables.show(views)
    if layers is not None:
        inspect_maps.show(loaded, views)
    if threshold:
        inspect_maps.name_critical(views)
    inspect_tables.sentences(words.of_layers(views))
    if other is not None and beside is not None:
        inspect_tables.facts(other, "against")
        inspect_against.show(beside)
        inspect_tables.sentences(words.of_comparison(beside, loaded, other))
    for path in pictures:
        plain(console(), f"Drawn: {path}")


def numbers(words: list[str] | None, artifact: Artifact) -> tuple[int, ...] | None:
    """Read ``--layer``; None means that none was named.

    Raises:
        ArtifactError: If a word is no layer of the artifact.

    """
    if not words:
        return None
    if "all" in words:
        return tuple(layer.index for layer in artifact.layers)
    found = []
    for word in words:
        if not word.isdecimal():
            raise ArtifactError(f"--layer takes a decoder layer number or 'all', not {word!r}.")
        found.append(artifact.layer_at(int(word)).index)
    return tuple(dict.fromkeys(found))
