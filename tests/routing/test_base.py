"""BASE against its rule in loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sere.errors import RoutingError
from sere.routing import LayerStatistics, RouterScores, RoutingBatch, make_policy
from tests.routing import rivals
from tests.routing.scored import scored_cases
from tests.routing.test_rivals import FAST, FLOORS, least, outcome, same


@FAST
@given(scored_cases(), st.integers(1, 20), FLOORS, st.integers(0, 99))
def test_base(scored, size, floor, seed):
    case, batch, layer = scored
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(len(case.ids), 6)).astype(np.float32)
    predictor = rng.normal(size=(case.experts, 7)).astype(np.float32)

    def removal(row, expert, weight):
        log = sum(float(a) * float(x) for a, x in zip(predictor[expert], hidden[row], strict=False))
        return (weight * math.exp(log + float(predictor[expert, -1]))) ** 2

    active = rivals.budget(case, rivals.slot_total(case, removal), size, 0, least(case, floor))
    batch = replace(batch, hidden=torch.from_numpy(hidden))
    layer = replace(layer, norm_predictor=torch.from_numpy(predictor))
    policy = make_policy("base", size=size, floor=floor)
    same(outcome(policy, batch, layer), rivals.backfilled(case, active))


def step(hidden: torch.Tensor | None) -> RoutingBatch:
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    return RoutingBatch(
        torch.tensor([[0, 1], [0, 2]]),
        weights[:, :2],
        3,
        scores=RouterScores(weights, weights),
        hidden=hidden,
    )


def test_the_same_routing_keeps_other_experts_for_other_inputs():
    # Expert 1 is long where x is positive, expert 2 where it is negative.
    predictor = torch.tensor([[0.0, 5.0], [3.0, 0.0], [-3.0, 0.0]])
    layer = LayerStatistics(norm_predictor=predictor)
    policy = make_policy("base", size=2)
    positive, negative = (policy.route(step(torch.full((2, 1), x)), layer) for x in (1.0, -1.0))
    assert positive.active.tolist() == [True, True, False]
    assert negative.active.tolist() == [True, False, True]


@pytest.mark.parametrize("far", [1e6, -1e6])
def test_inputs_far_from_calibration_give_no_infinities(far):
    layer = LayerStatistics(norm_predictor=torch.ones(3, 2))
    routes = make_policy("base", size=2).route(step(torch.full((2, 1), far)), layer)
    assert routes.active.sum() == 2
    assert bool(routes.weights.isfinite().all())


def test_an_input_of_another_width_is_refused():
    with pytest.raises(RoutingError, match="input of width 1, as calibrated, and got width 4"):
        make_policy("base").route(step(torch.zeros(2, 4)), LayerStatistics(norm_predictor=torch.ones(3, 2)))


def test_without_the_layers_input_it_is_refused_by_name():
    with pytest.raises(RoutingError, match="policy 'base' needs the layer's input"):
        make_policy("base").route(step(None), LayerStatistics(norm_predictor=torch.ones(3, 2)))
