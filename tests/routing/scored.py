"""Cases whose routing comes from a router's scores of all experts, with calibrated statistics beside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

from sere.routing import LayerStatistics, RouterScores, RoutingBatch


@dataclass
class Scored:
    """One layer and step as arrays."""

    ids: np.ndarray
    weights: np.ndarray
    kinds: np.ndarray
    order: np.ndarray
    weight: np.ndarray
    similarity: np.ndarray
    norm: np.ndarray
    gram: np.ndarray

    @property
    def experts(self) -> int:
        return self.order.shape[1]


@st.composite
def scored_cases(draw: st.DrawFn, max_rows: int = 40) -> tuple[Scored, RoutingBatch, LayerStatistics]:
    """A case for an oracle and the same case as tensors."""
    experts = draw(st.sampled_from((4, 5, 8, 17, 64)))
    top_k = draw(st.integers(1, min(8, experts)))
    rows = draw(st.integers(0, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = rng.normal(size=(rows, experts)) * 2
    if draw(st.booleans()):
        logits = np.round(logits)  # ties
    sigmoid = draw(st.booleans())
    weight = 1 / (1 + np.exp(-logits)) if sigmoid else np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    weight = weight.astype(np.float32)
    bias = rng.normal(size=experts) * 0.1 if draw(st.booleans()) else np.zeros(experts)
    order = (weight + bias).astype(np.float32)
    ids = np.stack([best(row)[:top_k] for row in order]) if rows else np.zeros((0, top_k))
    ids = ids.astype(np.int64)
    weights = np.take_along_axis(weight, ids, 1)
    if draw(st.booleans()):
        weights = weights / weights.sum(1, keepdims=True) * np.float32(draw(st.sampled_from((1.0, 2.5))))
    mix = rng.permuted(np.tile(np.arange(top_k), (rows, 1)), axis=1)
    ids, weights = np.take_along_axis(ids, mix, 1), np.take_along_axis(weights, mix, 1)
    if draw(st.booleans()):
        ids = np.where(rng.random(ids.shape) < 0.1, rng.choice([-1, experts, experts + 3], ids.shape), ids)
    if draw(st.booleans()):
        weights = np.where(rng.random(ids.shape) < 0.1, np.float32(0), weights)
    kinds = rng.choice(3, rows, p=draw(st.sampled_from(((1, 0, 0), (0.5, 0.3, 0.2)))))
    outputs = rng.normal(size=(experts, 6)) + rng.normal(size=6)
    gram = (outputs @ outputs.T).astype(np.float32)
    norm = np.sqrt(np.diag(gram)).astype(np.float32)
    similarity = (gram / norm[:, None] / norm[None]).astype(np.float32)
    case = Scored(ids, weights.astype(np.float32), kinds, order, weight, similarity, norm, gram)
    batch = RoutingBatch(
        torch.from_numpy(ids),
        torch.from_numpy(case.weights),
        experts,
        torch.from_numpy(kinds),
        RouterScores(torch.from_numpy(order), torch.from_numpy(weight)),
    )
    layer = LayerStatistics(*(torch.from_numpy(value) for value in (similarity, norm, gram)))
    return case, batch, layer


def best(scores: np.ndarray) -> np.ndarray:
    """Indices by falling score, then by rising index."""
    return np.lexsort((np.arange(len(scores)), -scores))
