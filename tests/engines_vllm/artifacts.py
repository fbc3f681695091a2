"""Artifacts of random numbers, for models of random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sere.artifact import Artifact, CalibrationRecord, LayerRecord, ModelRecord
from sere.version import __version__


def random_artifact(model: ModelRecord, layers: Sequence[Any]) -> Artifact:
    """Symmetric similarities drawn from [0, 1); ``layers`` have name, index, num_experts and top_k."""
    generator = torch.Generator().manual_seed(1)
    statistics = {}
    for layer in layers:
        drawn = torch.rand(layer.num_experts, layer.num_experts, generator=generator)
        statistics[layer.name] = {"frobenius": ((drawn + drawn.T) / 2).fill_diagonal_(1)}
    records = tuple(
        LayerRecord(name=layer.name, index=layer.index, num_experts=layer.num_experts, top_k=layer.top_k)
        for layer in layers
    )
    made = CalibrationRecord(source="reference", data="random numbers", sere_version=__version__)
    return Artifact.build(model, records, statistics, ("frobenius",), made)
