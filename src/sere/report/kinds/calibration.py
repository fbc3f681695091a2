"""An artifact: how alike the experts are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sere.artifact import Artifact
from sere.calibration import summarise
from sere.report.blocks import Charts, Section, Table, Text
from sere.report.charts.heat import heat
from sere.report.charts.layers import by_layer
from sere.report.form import called, number, plural
from sere.report.made import made
from sere.report.source import Source

MOST_MAPS = 8
"""Layers whose maps are drawn, spread evenly; the table has all."""


def read(folder: Path) -> Source:
    """Load the artifact in ``folder``.

    Raises:
        ArtifactError: If it is not whole.

    """
    artifact = Artifact.from_pretrained(folder)
    how = artifact.manifest.calibration
    rows = made(
        how.provenance,
        model=artifact.model,
        artifact=artifact.hash,
        seeds={} if how.seed is None else {"order of the sequences": how.seed},
    )
    if how.provenance is None:
        rows["versions"] = f"sere {how.sere_version}"
    rows["data"] = (
        f"{how.source}: {how.sequences} sequences of {how.sequence_length} tokens of {how.data}, "
        f"SHA-256 of the tokens {how.data_sha256 or 'not recorded'}"
    )
    return Source(
        name=folder.name,
        kind="calibration artifact",
        sha256=artifact.hash,
        record=artifact,
        made=rows,
        model=artifact.model,
        artifact=artifact.hash,
        facts={"tokens": how.tokens, "operating_points": dict(artifact.operating_points)},
    )


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:  # noqa: ARG001 - as all kinds
    """Draw the similarity of every layer in figures, and of some as maps."""
    artifact: Artifact = source.record
    layers = summarise(artifact)
    step = max(1, -(-len(layers) // MOST_MAPS))
    low, high = min(layer.lowest for layer in layers), max(layer.highest for layer in layers)
    maps = [
        heat(
            artifact.similarity(layer.name).tolist(),
            f"heat-{source.sha256[:6]}-{layer.index}",
            title=f"Layer {layer.index}",
            alt=f"Similarity of the {layer.num_experts} experts of layer {layer.index}: mean "
            f"{layer.mean:.3f}, "
            f"{layer.lowest:.3f} to {layer.highest:.3f}.",
            low=low,
            high=high,
        )
        for layer in layers[::step]
    ]
    lines = {
        "greatest": [layer.highest for layer in layers],
        "mean": [layer.mean for layer in layers],
        "least": [layer.lowest for layer in layers],
    }
    names = [str(layer.index) for layer in layers]
    anchor = f"calibration-{source.sha256[:6]}"
    chart = by_layer(
        lines, names, f"{anchor}-lines", title="Similarity by layer", up=artifact.default_metric, digits=3
    )
    table = Table(
        f"{artifact.default_metric} similarity of experts, by layer",
        [
            "layer",
            "experts",
            "mean",
            "least",
            "greatest",
            "most alike pairs",
            "hardest to replace (best similarity)",
        ],
        [
            [
                str(layer.index),
                str(layer.num_experts),
                number(layer.mean, 3),
                number(layer.lowest, 3),
                number(layer.highest, 3),
                ", ".join(f"{left} and {right}" for left, right, _ in layer.pairs),
                ", ".join(f"{expert} ({best:.3f})" for expert, best in layer.critical),
            ]
            for layer in layers
        ],
        prose=True,
    )
    some = "" if step == 1 else f" Maps are drawn of every {step}th layer; the table has all."
    text = Text(
        f"Measured with all experts on all of {plural(source.facts['tokens'], 'token')}. Light is "
        "alike: where a row "
        f"has a light spot, that expert has a good substitute. All maps share one scale.{some}"
    )
    return [
        Section(
            anchor,
            f"How alike the experts are: {called(artifact.model.id)}",
            [text, Charts([*maps, chart]), table],
        )
    ]
