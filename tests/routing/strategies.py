"""Hypothesis strategies for routing cases: every trap of the shared semantics, often at once."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from sere.routing import LayerStatistics, RoutingBatch
from tests.routing.oracle import Case

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@st.composite
def cases(draw: st.DrawFn, max_rows: int = 300) -> tuple[Case, RoutingBatch, LayerStatistics]:
    """A case for the oracle and the same case as tensors."""
    experts = draw(st.sampled_from((4, 5, 8, 17, 60, 64, 128, 256, 512)))
    top_k = draw(st.integers(1, min(16, experts)))
    rows = draw(st.one_of(st.integers(0, min(6, max_rows)), st.integers(0, max_rows)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ids = np.stack([rng.permutation(experts)[:top_k] for _ in range(rows)]) if rows else np.zeros((0, top_k))
    ids = ids.astype(np.int64)
    coarse = draw(st.booleans())
    weights = rng.integers(1, 4, ids.shape) / 4 if coarse else rng.random(ids.shape) + 1e-3
    if draw(st.booleans()):
        weights = np.where(rng.random(ids.shape) < 0.2, 0.0, weights)
    if draw(st.booleans()):
        ids = np.where(rng.random(ids.shape) < 0.15, -1, ids)
    if draw(st.booleans()):
        ids = np.where(rng.random(ids.shape) < 0.1, experts + rng.integers(0, 3, ids.shape), ids)
    if draw(st.booleans()):
        weights = np.where(rng.random(ids.shape) < 0.1, np.nan, weights)
    kinds = rng.choice(3, rows, p=draw(st.sampled_from(((1, 0, 0), (0.5, 0.3, 0.2), (0, 0.5, 0.5)))))
    levels = draw(st.sampled_from((2, 5, 1000)))
    similarity = (rng.integers(-levels // 4, levels + 1, (experts, experts)) / levels).astype(np.float32)
    similarity = np.maximum(similarity, similarity.T)
    dtype = draw(st.sampled_from(DTYPES))
    tensor = torch.from_numpy(weights).to(dtype)
    index = torch.from_numpy(ids).to(draw(st.sampled_from((torch.int32, torch.int64))))
    case = Case(ids.tolist(), tensor.double().tolist(), kinds.tolist(), experts, similarity)
    batch = RoutingBatch(index, tensor, experts, torch.from_numpy(kinds))
    return case, batch, LayerStatistics(torch.from_numpy(similarity))


THRESHOLDS = st.sampled_from((0.0, 0.2, 0.5, 0.6, 1.0))
"""Some of them are values that a similarity can take exactly."""
