"""What fewer slots cost a layer, and the best spread of a total."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from sere.engines.transformers import find_layers
from sere.errors import PolicyError
from sere.evaluation.allocation import allocate, top_k_losses


@pytest.mark.parametrize("seed", range(4))
def test_the_spread_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    losses = [sorted(rng.random(4).tolist(), reverse=True) for _ in range(4)]
    for total in (4, 7, 10, 16):
        spreads = [ks for ks in itertools.product(range(1, 5), repeat=4) if sum(ks) == total]
        best = min(spreads, key=lambda ks: sum(row[k - 1] for row, k in zip(losses, ks, strict=True)))
        assert allocate(losses, total) == best


@pytest.mark.parametrize("total", [1, 9])
def test_a_total_that_does_not_fit_is_refused(total):
    with pytest.raises(PolicyError, match="cannot be spread over 2 layers"):
        allocate([[1, 0.5, 0.2, 0]] * 2, total)


def test_losses_are_those_of_each_rows_heaviest_experts_renormalised(model):
    found = top_k_losses(model, rows=32, seed=5)
    layer = find_layers(model)[1]
    block = model.get_submodule(layer.name.rpartition(".")[0])
    rows = torch.randn(1, 32, model.config.hidden_size, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits = torch.nn.functional.linear(rows[0], block.gate.weight)
        weights, ids = logits.softmax(-1).topk(layer.top_k)
        one = torch.ones(32, 1)
        outputs = torch.stack([layer.module(rows[0], ids[:, k : k + 1], one) for k in range(layer.top_k)], 1)

        def mixture(k):
            kept = weights[:, :k] / weights[:, :k].sum(1, keepdim=True)
            return (kept.unsqueeze(2) * outputs[:, :k]).sum(1)

        whole = mixture(layer.top_k)
        wanted = [float((mixture(k + 1) - whole).norm() / whole.norm()) for k in range(layer.top_k)]
    assert found[layer.index] == pytest.approx(wanted, abs=1e-5)
    assert len(found) == len(find_layers(model))
