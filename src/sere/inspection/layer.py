"""Everything that one artifact says about its layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sere.artifact import Artifact
from sere.inspection.clusters import Clusters, clusters
from sere.inspection.critical import THRESHOLDS, Critical, check_threshold, critical
from sere.inspection.hub import Hub, hub
from sere.inspection.routed import Routed, routed
from sere.inspection.spread import Spread, spread
from sere.inspection.substitutes import pairs, ranked

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LayerView:
    """One layer, inspected.

    Attributes:
        name: Module path of the experts module.
        index: Decoder layer number.
        num_experts: E.
        top_k: K, experts of a token.
        metric: The similarity that all figures are of.
        spread: Distribution over all pairs; every layer of an inspection has the same histogram edges.
        substitutes: For each expert (its best substitute, their similarity); empty for one expert.
        hub: The expert that stands in for most others; None for one expert.
        critical: For each threshold, what it keeps with K experts active, the smallest active set.
        clusters: Groups of experts that are alike.
        routed: How many tokens its moments of routed tokens are of; None where there are none.

    """

    name: str
    index: int
    num_experts: int
    top_k: int
    metric: str
    spread: Spread
    substitutes: tuple[tuple[int, float], ...]
    hub: Hub | None
    critical: tuple[Critical, ...]
    clusters: Clusters
    routed: Routed | None


def inspect(
    artifact: Artifact,
    *,
    metric: str | None = None,
    layers: Sequence[int] | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    number: int | None = None,
) -> tuple[LayerView, ...]:
    """Inspect layers of an artifact.

    Args:
        artifact: The artifact.
        metric: Similarity to look at; None takes the artifact's default.
        layers: Decoder layer numbers; None takes all.
        thresholds: Similarities that substitutes must reach.
        number: Clusters in each layer; None lets each layer's silhouette decide.

    Raises:
        ArtifactError: If a layer or the metric is not there, a threshold is not above 0 and at most 1, or a
            layer has fewer experts than clusters are asked for.

    """
    for threshold in thresholds:
        check_threshold(threshold)
    wanted = artifact.layers if layers is None else tuple(artifact.layer_at(index) for index in layers)
    found = {layer.name: matrix(artifact, layer.name, metric) for layer in wanted}
    values = {name: pairs(similarity) for name, similarity in found.items()}
    span = (
        min(float(each.min()) for each in values.values()),
        max(float(each.max()) for each in values.values()),
    )
    return tuple(
        LayerView(
            name=layer.name,
            index=layer.index,
            num_experts=layer.num_experts,
            top_k=layer.top_k,
            metric=metric or artifact.default_metric,
            spread=spread(values[layer.name], span),
            substitutes=_substitutes(found[layer.name]),
            hub=hub(found[layer.name], _norms(artifact, layer.name)),
            critical=tuple(critical(found[layer.name], each, layer.top_k) for each in thresholds),
            clusters=clusters(found[layer.name], number),
            routed=routed(artifact, layer.name),
        )
        for layer in wanted
    )


def matrix(artifact: Artifact, name: str, metric: str | None) -> Floats:
    """Return a layer's similarities, shape [E, E], float64 of the stored float32 values.

    Raises:
        ArtifactError: If the layer or the metric is not there.

    """
    return np.asarray(artifact.similarity(name, metric).double().numpy())


def _norms(artifact: Artifact, name: str) -> Floats | None:
    if "norm" not in artifact.manifest.fields:
        return None  # an import holds its similarity only
    return np.asarray(artifact.tensor(name, "norm").double().numpy())


def _substitutes(similarity: Floats) -> tuple[tuple[int, float], ...]:
    first = ranked(similarity)[:, :1].flatten()
    return tuple((int(to), float(similarity[expert, to])) for expert, to in enumerate(first))
