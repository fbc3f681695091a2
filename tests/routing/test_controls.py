"""The two controls: the no-op and plain truncation."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sere.routing import DECODE, PREFILL, LayerStatistics, RoutingBatch, make_policy
from tests.routing import oracle
from tests.routing.strategies import cases

NOTHING = LayerStatistics()


@given(cases())
@settings(deadline=None)
def test_none_returns_the_very_input(drawn):
    _, batch, _ = drawn
    routes = make_policy("none").route(batch, NOTHING)
    assert routes.ids is batch.ids
    assert routes.weights is batch.weights


@given(cases(max_rows=60), st.integers(1, 16))
@settings(deadline=None, max_examples=200)
def test_top_k_keeps_each_rows_heaviest_slots_and_reads_nothing_else(drawn, k):
    case, batch, _ = drawn
    routes = make_policy("top_k", k=k, renormalise=False).route(batch, NOTHING)
    loaded = set()
    for row, kind in enumerate(case.kinds):
        order = oracle.heaviest_first(case, row)
        kept = order[:k] if kind == DECODE else order
        if kind in (DECODE, PREFILL):
            loaded |= {case.ids[row][slot] for slot in kept}
        for slot in range(batch.top_k):
            if slot in order[k:] and kind == DECODE:
                assert routes.weights[row, slot] == 0
                assert routes.ids[row, slot] == case.ids[row][order[0]]
                assert routes.empty[row, slot]
            else:
                assert routes.ids[row, slot] == case.ids[row][slot]
                assert not routes.empty[row, slot]
    assert set(routes.active.nonzero().flatten().tolist()) == loaded


def test_renormalising_keeps_the_rows_sum():
    batch = RoutingBatch(torch.tensor([[3, 1, 2]]), torch.tensor([[0.1, 0.3, 0.2]]), 4)
    routes = make_policy("top_k", k=2).route(batch, NOTHING)
    torch.testing.assert_close(routes.weights, torch.tensor([[0.0, 0.36, 0.24]]))


def test_weights_that_cancel_are_left_alone():
    batch = RoutingBatch(torch.tensor([[3, 1, 2]]), torch.tensor([[0.5, -0.5, -0.7]]), 4)
    routes = make_policy("top_k", k=2).route(batch, NOTHING)
    assert routes.weights.tolist() == [[0.5, -0.5, 0.0]]
