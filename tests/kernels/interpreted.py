"""Triton's kernels under its interpreter; run by ``test_triton.py`` in a process of its own.

The interpreter must be asked for before a kernel is decorated, so this file cannot share a process.
"""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sere.kernels import LayerTable, Options, definition, gpu
from sere.kernels.backfilling import definition as backfill_definition
from sere.routing import FIELDS
from tests.kernels.made import BACKFILL, OPTIONS, assert_same, make_step, steps

assert os.environ["TRITON_INTERPRET"] == "1"
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def launched(step, options, add=False, counts=None):
    table = LayerTable.prepare(step.layer, options.threshold)
    out = torch.full_like(step.ids, 77), torch.full_like(step.weights, 77)
    counts = torch.full((len(FIELDS),), 77) if counts is None else counts
    gpu.launch(*step.slots, table, options, *out, counts, add=add)
    return (*out, counts), definition.reroute(*step.slots, table, options)


@SLOW
@given(steps(40), OPTIONS)
def test_one_launch_equals_the_definition(step, options):
    assert_same(*launched(step, options))


@SLOW
@given(steps(150), OPTIONS, st.sampled_from((2, 32)))
def test_two_launches_equal_the_definition(step, options, shares):
    slots, most = gpu.ONE_LAUNCH_SLOTS, gpu.MOST_SHARES
    gpu.ONE_LAUNCH_SLOTS, gpu.MOST_SHARES = -1, shares
    try:
        if step.ids.shape[0]:
            assert_same(*launched(step, options))
    finally:
        gpu.ONE_LAUNCH_SLOTS, gpu.MOST_SHARES = slots, most


@pytest.mark.parametrize(("rows", "top_k", "experts"), [(4096, 8, 256), (1000, 4, 60), (256, 8, 128)])
def test_large_steps_equal_the_definition(rows, top_k, experts):
    step = make_step(rows, top_k, experts, hostile=True, mixed=True, skew=3.0)
    assert_same(*launched(step, Options(2, 0.5, merge=rows < 1000)))


@pytest.mark.parametrize("rows", [40, 700])
def test_counters_of_several_steps_add_up_in_the_row_of_their_phase(rows):
    counts, expected = (
        torch.zeros(3, len(FIELDS), dtype=torch.int64),
        torch.zeros(3, len(FIELDS), dtype=torch.int64),
    )
    for mixed in (False, True, False):  # the second has rows of every kind
        step = make_step(rows, 8, 64, mixed=mixed)
        _, by_definition = launched(step, Options(1, merge=True), True, counts)
        definition.add_to(expected, by_definition[2])
    assert counts.tolist() == expected.tolist()
    assert counts[0, 0] == 2
    assert counts[2, 0] == 1


@SLOW
@given(steps(20), BACKFILL)
def test_backfill_equals_its_definition(step, options):
    arguments = (*step.slots, step.scores, step.preference, options)
    assert_same(gpu.launch_backfill(*arguments), backfill_definition(*arguments))
