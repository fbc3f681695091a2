"""What a calibration says about each layer, in a few figures."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sere.artifact import Artifact


@dataclass(frozen=True)
class LayerSummary:
    """Figures of one layer.

    Attributes:
        name: Module path of the experts module.
        index: Decoder layer number.
        num_experts: E.
        metric: The similarity that the figures are of.
        mean: Mean similarity over all pairs of different experts.
        lowest: Least similarity of a pair.
        highest: Greatest similarity of a pair.
        pairs: The most alike pairs, (expert, expert, similarity), the most alike first.
        critical: Candidates for critical experts, (expert, its best similarity to any other): those whose
            best substitute is the worst, the least replaceable first.

    """

    name: str
    index: int
    num_experts: int
    metric: str
    mean: float
    lowest: float
    highest: float
    pairs: tuple[tuple[int, int, float], ...]
    critical: tuple[tuple[int, float], ...]


def summarise(
    artifact: Artifact, *, metric: str | None = None, pairs: int = 3, critical: int = 3
) -> tuple[LayerSummary, ...]:
    """Summarise every layer of an artifact.

    Args:
        artifact: The artifact.
        metric: Similarity to look at; None takes the artifact's default.
        pairs: Most alike pairs to name.
        critical: Least replaceable experts to name.

    Raises:
        ArtifactError: If the artifact cannot serve the metric.

    """
    return tuple(_layer(artifact, layer.name, metric, pairs, critical) for layer in artifact.layers)


def _layer(artifact: Artifact, name: str, metric: str | None, pairs: int, critical: int) -> LayerSummary:
    record = artifact.layer(name)
    similarity = artifact.similarity(name, metric).double()
    rows, columns = torch.triu_indices(record.num_experts, record.num_experts, offset=1)
    values = similarity[rows, columns]
    if not values.numel():  # One expert has no pair.
        values = similarity.flatten()[:1]
    order = values.argsort(descending=True, stable=True)[: min(pairs, len(rows))].tolist()
    others = similarity.clone().fill_diagonal_(float("-inf"))
    best = others.amax(1)
    weakest = best.argsort(stable=True)[:critical].tolist() if len(rows) else []
    return LayerSummary(
        name=name,
        index=record.index,
        num_experts=record.num_experts,
        metric=metric or artifact.default_metric,
        mean=float(values.mean()),
        lowest=float(values.min()),
        highest=float(values.max()),
        pairs=tuple((int(rows[place]), int(columns[place]), float(values[place])) for place in order),
        critical=tuple((int(expert), float(best[expert])) for expert in weakest),
    )
