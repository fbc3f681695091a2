"""A small artifact with random numbers."""

from __future__ import annotations

import torch

from sere.artifact import Artifact, CalibrationRecord, LayerRecord, ModelRecord

EXPERTS = 6
LAYERS = tuple(
    LayerRecord(name=f"model.layers.{index}.mlp.experts", index=index, num_experts=EXPERTS, top_k=2)
    for index in (1, 2, 5)
)
MODEL = ModelRecord.describe(
    id="some/model", revision="abc", architecture="qwen3_moe", hidden_size=32, layers=LAYERS
)
RECORD = CalibrationRecord(
    data="my texts", sequences=4, sequence_length=8, tokens=32, batches=2, seed=0, sere_version="1.2"
)


def symmetric(draw: torch.Generator) -> torch.Tensor:
    half = torch.rand(EXPERTS, EXPERTS, generator=draw) / 2
    return half + half.T


def artifact(seed: int = 0) -> Artifact:
    draw = torch.Generator().manual_seed(seed)
    statistics = {
        layer.name: {
            "gram": symmetric(draw),
            "gram_normalised": symmetric(draw) - 0.5,
            "norm": torch.rand(EXPERTS, generator=draw),
            "frobenius": symmetric(draw),
        }
        for layer in LAYERS
    }
    return Artifact.build(MODEL, LAYERS, statistics, ("frobenius", "cosine"), RECORD)
