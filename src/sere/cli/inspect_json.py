"""The JSON document of ``sere inspect``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sere.artifact import Artifact
from sere.calibration import summarise
from sere.inspection import LayerAgainst, LayerView, inspect, words


def as_dict(
    artifact: Artifact,
    views: Sequence[LayerView] | None = None,
    other: Artifact | None = None,
    beside: Sequence[LayerAgainst] | None = None,
    pictures: Sequence[Path] = (),
) -> dict[str, Any]:
    """Return the manifest, the hash and all that was found of every layer.

    Args:
        artifact: The artifact.
        views: Its layers, inspected; None inspects all.
        other: An artifact that it was compared with.
        beside: The comparison.
        pictures: Files drawn.

    """
    views = inspect(artifact) if views is None else views
    summaries = {layer.index: layer for layer in summarise(artifact, metric=views[0].metric)}
    found: dict[str, Any] = {
        "hash": artifact.hash,
        "manifest": artifact.manifest.model_dump(mode="json"),
        "layers": [{**dataclasses.asdict(summaries[view.index]), **_layer(view)} for view in views],
        "meaning": words.of_layers(views),
    }
    if other is not None and beside is not None:
        found["against"] = {
            "hash": other.hash,
            "manifest": other.manifest.model_dump(mode="json"),
            "layers": [dataclasses.asdict(layer) for layer in beside],
            "meaning": words.of_comparison(beside, artifact, other),
        }
    if pictures:
        found["pictures"] = [str(path) for path in pictures]
    return found


def _layer(view: LayerView) -> dict[str, Any]:
    return {
        "top_k": view.top_k,
        "spread": dataclasses.asdict(view.spread),
        "substitutes": view.substitutes,
        "hub": dataclasses.asdict(view.hub) if view.hub else None,
        "critical_at": [dataclasses.asdict(each) for each in view.critical],
        "clusters": dataclasses.asdict(view.clusters),
        "routed": dataclasses.asdict(view.routed) if view.routed else None,
    }
