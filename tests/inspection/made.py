"""Artifacts whose answers are known."""

from __future__ import annotations

import numpy as np
import torch

from sere.artifact import Artifact, CalibrationRecord, LayerRecord, ModelRecord


def planted(sizes=(4, 3, 2), within=0.9, between=0.2, seed=0, noise=0.02):
    """Similarities of shuffled clusters of these sizes, and each expert's cluster."""
    draw = np.random.default_rng(seed)
    labels = draw.permutation(np.repeat(np.arange(len(sizes)), sizes))
    base = np.where(labels[:, None] == labels[None, :], within, between)
    jitter = draw.uniform(-noise, noise, base.shape)
    similarity = base + (jitter + jitter.T) / 2
    np.fill_diagonal(similarity, 1.0)
    return similarity.astype(np.float32).astype(np.float64), labels


def made(*matrices, norms=None, top_k=2, model="some/model", hidden=32, data="one", metric="frobenius"):
    """An artifact with these similarities, one a layer, from layer 1 on."""
    layers = tuple(
        LayerRecord(
            name=f"model.layers.{index}.mlp.experts",
            index=index,
            num_experts=len(matrix),
            top_k=min(top_k, len(matrix)),
        )
        for index, matrix in enumerate(matrices, 1)
    )
    statistics = {
        layer.name: {
            metric: torch.tensor(matrix),
            "norm": torch.tensor(norms if norms is not None else np.ones(len(matrix))),
        }
        for layer, matrix in zip(layers, matrices, strict=True)
    }
    record = ModelRecord.describe(id=model, architecture="qwen3_moe", hidden_size=hidden, layers=layers)
    how = CalibrationRecord(
        data=data, data_sha256=data, sequences=4, sequence_length=8, tokens=32, sere_version="1"
    )
    return Artifact.build(record, layers, statistics, (metric,), how)


def random(experts=12, seed=0):
    """A symmetric matrix of random similarities with ones on the diagonal."""
    draw = np.random.default_rng(seed).uniform(0, 1, (experts, experts)).astype(np.float32).astype(np.float64)
    similarity = (draw + draw.T) / 2
    np.fill_diagonal(similarity, 1.0)
    return similarity.astype(np.float32).astype(np.float64)
