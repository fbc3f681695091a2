"""The numpy path gives the definition's bits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from sere.kernels import BackfillOptions, LayerTable, Options, cpu, definition
from sere.kernels import backfill as fused_backfill
from sere.kernels.backfilling import definition as backfill_definition
from sere.routing import FIELDS
from tests.kernels.made import BACKFILL, OPTIONS, TOTALS, assert_same, make_step, steps

MANY = settings(max_examples=250, deadline=None)


@MANY
@given(steps(100), OPTIONS)
def test_equals_the_definition(step, options):
    table = LayerTable.prepare(step.layer, options.threshold)
    expected = definition.reroute(*step.slots, table, options)
    assert_same(cpu.reroute(*step.slots, table, options), expected)


@pytest.mark.parametrize(("rows", "top_k", "experts"), [(4096, 8, 256), (4096, 16, 512), (1, 16, 8)])
def test_large_steps_equal_the_definition(rows, top_k, experts):
    step = make_step(rows, top_k, experts, hostile=True, mixed=True, skew=3.0)
    for options in (Options(1, 0.0), Options(2, 0.5, merge=True)):
        table = LayerTable.prepare(step.layer, options.threshold)
        assert_same(cpu.reroute(*step.slots, table, options), definition.reroute(*step.slots, table, options))


def test_rows_that_are_not_contiguous_are_read_as_they_are():
    step = make_step(6, 8, 64)
    table = LayerTable.prepare(step.layer, 0.0)
    turned = step.ids.T.contiguous().T, step.weights.T.contiguous().T, None
    expected = definition.reroute(*step.slots, table, Options(1, merge=True))
    assert_same(cpu.reroute(*turned, table, Options(1, merge=True)), expected)


def test_it_does_re_route():
    step = make_step(16, 8, 128)
    table = LayerTable.prepare(step.layer, 0.0)
    counted = dict(zip(FIELDS, cpu.reroute(*step.slots, table, Options(1))[2].tolist(), strict=True))
    assert counted["rerouted"] > 30
    assert counted["experts_after"] < counted["experts_before"] / 2


@MANY
@given(steps(60), BACKFILL, TOTALS)
def test_backfill_equals_its_definition(step, options, totals):
    arguments = (*step.slots, step.scores, step.total if totals else None, options)
    assert_same(fused_backfill(*arguments), backfill_definition(*arguments))


@pytest.mark.parametrize(("rows", "top_k", "experts"), [(2000, 8, 256), (600, 16, 512), (1, 16, 8)])
def test_large_steps_backfill_as_the_definition(rows, top_k, experts):
    step = make_step(rows, top_k, experts, hostile=True, mixed=True, skew=3.0)
    for options in (BackfillOptions(1, 0), BackfillOptions(0, size=40)):
        arguments = (*step.slots, step.scores, None, options)
        assert_same(fused_backfill(*arguments), backfill_definition(*arguments))


def test_backfill_gives_rows_their_own_top_k_among_the_active_experts():
    step = make_step(12, 4, 64, skew=2.0)
    ids, weights, counts = fused_backfill(*step.slots, step.scores, None, BackfillOptions(1, 0, 12))
    scores = step.scores.weight
    first = step.ids.gather(1, step.weights.argmax(1, keepdim=True)).flatten()
    free = [e for e in scores.sum(0).argsort(descending=True).tolist() if e not in first]
    active = torch.cat([first.unique(), torch.tensor(free)])[:12]
    inside = torch.full_like(scores, -1.0)
    inside[:, active] = scores[:, active]
    best = inside.topk(4).indices
    assert torch.equal(ids.sort(1).values, best.sort(1).values)
    share = scores.gather(1, ids) / scores.gather(1, best).sum(1, keepdim=True)
    torch.testing.assert_close(weights, share * step.weights.sum(1, keepdim=True), rtol=2e-3, atol=0)
    counted = dict(zip(FIELDS, counts.tolist(), strict=True))
    assert counted["experts_after"] <= 12
    assert counted["rerouted"] > 0


def test_a_row_with_more_open_slots_than_active_experts_gets_each_once():
    step = make_step(rows=1, top_k=2, experts=8, skew=0.0)
    options = BackfillOptions(0, 0, size=1)
    ids, weights, _ = fused_backfill(*step.slots, step.scores, step.total, options)
    assert_same(
        fused_backfill(*step.slots, step.scores, step.total, options),
        backfill_definition(*step.slots, step.scores, step.total, options),
    )
    assert ids.unique().numel() == 1
    assert (weights != 0).sum() == 1
