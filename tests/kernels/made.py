"""Steps with every trap at once: ties, foreign ids, weightless slots, NaN, all row kinds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from sere.kernels import BackfillOptions, Options
from sere.routing import LayerStatistics, RouterScores

EXPERTS = (8, 60, 64, 128, 160, 256, 384, 512)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
THRESHOLDS = (0.0, 0.2, 0.5, 1.0, 1.5)


@dataclass
class Step:
    """One layer and step."""

    ids: Tensor
    weights: Tensor
    kinds: Tensor | None
    similarity: Tensor
    scores: RouterScores
    total: Tensor

    @property
    def layer(self) -> LayerStatistics:
        return LayerStatistics(self.similarity)

    @property
    def slots(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.ids, self.weights, self.kinds


def make_step(
    rows: int,
    top_k: int,
    experts: int,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    wide: bool = True,
    coarse: bool = False,
    hostile: bool = False,
    mixed: bool = False,
    skew: float = 1.0,
) -> Step:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((rows, experts)) + skew * rng.standard_normal(experts)
    scores = np.exp(logits)
    scores = np.round(scores * 2) / 2 if coarse else scores
    ids = np.argsort(-scores, axis=1, kind="stable")[:, : min(top_k, experts)]
    ids = np.pad(ids, ((0, 0), (0, top_k - ids.shape[1])), constant_values=-1).astype(np.int64)
    weights = np.take_along_axis(scores, ids.clip(0), 1) + (0 if coarse else 1e-3)
    weights = weights / np.maximum(weights.sum(1, keepdims=True), 1e-6)
    similarity = rng.integers(-2, 6, (experts, experts)) / 5 if coarse else rng.random((experts, experts))
    if hostile:
        strange = np.array([-1, -(2**31), 2**31 - 1, experts, experts + 1])
        ids = np.where(rng.random(ids.shape) < 0.15, rng.choice(strange, ids.shape), ids)
        ids = np.where(rng.random(ids.shape) < 0.1, rng.integers(0, experts, ids.shape), ids)
        weights = np.where(rng.random(ids.shape) < 0.15, 0.0, weights)
        weights = np.where(rng.random(ids.shape) < 0.05, np.nan, weights)
        weights = np.where(rng.random(ids.shape) < 0.05, -weights, weights)
        scores = np.where(rng.random(scores.shape) < 0.05, np.nan, scores)
        scores = np.where(rng.random(scores.shape) < 0.02, rng.choice([-1.0, 0.0, np.inf, -np.inf]), scores)
    order = rng.permuted(np.tile(np.arange(top_k), (rows, 1)), axis=1) if rows else ids
    ids, weights = np.take_along_axis(ids, order, 1), np.take_along_axis(weights, order, 1)
    kinds = rng.choice(4, rows, p=(0.5, 0.25, 0.2, 0.05)) if mixed else None
    biased = scores + (rng.integers(-1, 2, experts) / 4 if coarse or hostile else 0)
    total = np.round(rng.standard_normal(experts) * 3) / 2
    total = np.where(rng.random(experts) < (0.1 if hostile else 0), np.nan, total)
    return Step(
        torch.from_numpy(ids).to(torch.int64 if wide else torch.int32),
        torch.from_numpy(weights).to(dtype),
        None if kinds is None else torch.from_numpy(kinds.astype(np.int32)),
        torch.from_numpy(similarity.astype(np.float32)),
        RouterScores(torch.from_numpy(biased).float(), torch.from_numpy(scores).float()),
        torch.from_numpy(total).float(),
    )


def steps(most_rows: int) -> st.SearchStrategy[Step]:
    return st.builds(
        make_step,
        rows=st.one_of(st.integers(0, 4), st.integers(5, most_rows)),
        top_k=st.integers(1, 16),
        experts=st.sampled_from(EXPERTS),
        seed=st.integers(0, 2**32 - 1),
        dtype=st.sampled_from(DTYPES),
        wide=st.booleans(),
        coarse=st.booleans(),
        hostile=st.booleans(),
        mixed=st.booleans(),
        skew=st.sampled_from((0.0, 1.0, 3.0)),
    )


TOTALS = st.booleans()
"""Whether totals are given; without, the router's scores are summed."""

OPTIONS = st.builds(
    Options,
    top_s=st.integers(1, 6),
    threshold=st.sampled_from(THRESHOLDS),
    floor=st.sampled_from((None, 0, 3, 40)),
    everyone=st.booleans(),
    merge=st.booleans(),
    redirect_padding=st.booleans(),
)

_FLAGS = {name: st.booleans() for name in ("renormalise", "everyone", "redirect_padding")}
_FLOORS = st.sampled_from((None, 0, 3, 40))
BACKFILL = st.one_of(
    st.builds(BackfillOptions, top_s=st.integers(1, 6), floor=_FLOORS, size=st.just(0), **_FLAGS),
    st.builds(
        BackfillOptions,
        top_s=st.integers(0, 6),
        floor=_FLOORS,
        size=st.sampled_from((1, 3, 8, 30, 1000)),
        **_FLAGS,
    ),
)


def assert_same(got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    """Ids, weights and counters are the same, bit for bit."""
    for mine, theirs, name in zip(got, expected, ("ids", "weights", "counters"), strict=True):
        assert mine.dtype == theirs.dtype, name
        torch.testing.assert_close(
            mine, theirs, rtol=0, atol=0, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )
