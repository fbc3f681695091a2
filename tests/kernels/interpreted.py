"""Triton's kernels under its interpreter; run by ``test_triton.py`` in a process of its own.

The interpreter must be asked for before a kernel is decorated, so this file cannot share a process.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from sere.kernels import BackfillOptions, LayerTable, Options, definition, gpu, gpu_filling
from sere.kernels.backfilling import definition as backfill_definition
from sere.routing import FIELDS
from tests.kernels.made import BACKFILL, OPTIONS, TOTALS, assert_same, make_step, steps

assert os.environ["TRITON_INTERPRET"] == "1"
SLOW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)


@pytest.fixture(autouse=True, scope="module")
def _rounding():
    """The interpreter cuts float32 off to bfloat16, where a GPU rounds to the nearest, as torch does."""
    cut = InterpreterBuilder.cast_impl

    def cast(self, source, kind):
        if source.dtype.scalar == tl.float32 and kind.scalar == tl.bfloat16:
            rounded = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16().view(torch.int16)
            return TensorHandle(rounded.numpy().view(np.uint16), tl.bfloat16)
        return cut(self, source, kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "cast_impl", cast)
        yield


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


def backfilled(step, options, totals, held=None):
    """Both forms' ids, weights and counters; with ``held``, the options' numbers are read from there."""
    numbers = None if held is None else torch.tensor(held, dtype=torch.int32)
    out = torch.full_like(step.ids, 77), torch.full_like(step.weights, 77), torch.full((len(FIELDS),), 77)
    arguments = (*step.slots, step.scores, step.total if totals else None)
    gpu_filling.launch(*arguments, options, *out, numbers)
    if held is not None:
        options = replace(options, **dict(zip(("top_s", "floor", "size"), held, strict=True)))
    return out, backfill_definition(*arguments, options)


@SLOW
@given(steps(20), BACKFILL, TOTALS)
def test_backfill_equals_its_definition(step, options, totals):
    assert_same(*backfilled(step, options, totals))


@pytest.mark.parametrize("held", [(2, 0, 12), (1, 0, 9), (8, 0, 0)])
def test_backfill_reads_its_numbers_where_they_are_held(held):
    step = make_step(9, 8, 64, mixed=True)
    assert_same(*backfilled(step, BackfillOptions(1, 0, 10), False, held))
