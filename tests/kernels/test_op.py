"""The operation: registered, opaque, functional, with an out-variant; and without Triton."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sere.errors import RoutingError
from sere.kernels import (
    BackfillOptions,
    LayerTable,
    Options,
    backend_name,
    backfill_into,
    definition,
    reroute,
    reroute_into,
)
from sere.kernels import backfill as fused_backfill
from sere.kernels.backfilling import definition as backfill_definition
from sere.kernels.op import _flat
from sere.routing import FIELDS
from tests.kernels.made import assert_same, make_step

OPTIONS = Options(1, 0.3, merge=True)


def made():
    step = make_step(9, 4, 16, mixed=True)
    return step, LayerTable.prepare(step.layer, OPTIONS.threshold)


def test_passes_torchs_own_checks_of_custom_operations():
    step, table = made()
    arguments = (*step.slots, table.similarity, table.order, *_flat(OPTIONS))
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.sere.reroute_fused.default, arguments, test_utils=tests)
    buffers = (*map(torch.empty_like, step.slots[:2]), torch.zeros(3, len(FIELDS), dtype=torch.int64), None)
    torch.library.opcheck(torch.ops.sere.reroute_fused_into.default, arguments + buffers, test_utils=tests)
    scores, options = (step.scores.order, step.scores.weight, None), _flat(BackfillOptions(1, 0, 5))
    arguments = (*step.slots, *scores, *options)
    torch.library.opcheck(torch.ops.sere.backfill_fused.default, arguments, test_utils=tests)
    held = torch.tensor([1, 0, 3], dtype=torch.int32)
    buffers = (*buffers[:3], held)
    torch.library.opcheck(torch.ops.sere.backfill_fused_into.default, arguments + buffers, test_utils=tests)


def test_is_one_opaque_call_in_compiled_code():
    step, table = made()
    seen = []

    def look(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: reroute(*x, table, OPTIONS), backend=look, fullgraph=True)
    assert_same(compiled(*step.slots), definition.reroute(*step.slots, table, OPTIONS))
    assert [name for name in seen if "sere" in name] == ["sere.reroute_fused"]


def test_never_hands_its_input_back_even_where_nothing_changes():
    step, table = made()
    for slots in (step.slots, (step.ids, step.weights.double(), step.kinds)):
        ids, weights, _ = reroute(*slots, table, Options(4))
        assert torch.equal(ids, slots[0])
        assert ids.data_ptr() != slots[0].data_ptr()
        assert weights.data_ptr() != slots[1].data_ptr()


def test_inputs_are_not_changed():
    step, table = made()
    before = step.ids.clone(), step.weights.clone()
    reroute(*step.slots, table, OPTIONS)
    fused_backfill(*step.slots, step.scores, step.total, BackfillOptions(1, 0, 3))
    assert torch.equal(step.ids, before[0])
    assert torch.equal(step.weights, before[1])


def test_writes_into_given_tensors_and_adds_counters_by_phase():
    step, table = made()
    ids, weights = torch.empty_like(step.ids), torch.empty_like(step.weights)
    counts = torch.zeros(3, len(FIELDS), dtype=torch.int64)
    for _ in range(2):
        reroute_into(*step.slots, table, OPTIONS, ids, weights, counts)
    expected = definition.reroute(*step.slots, table, OPTIONS)
    assert_same((ids, weights, counts[2]), (*expected[:2], 2 * expected[2]))
    assert not counts[:2].any()


@pytest.mark.parametrize("held", [None, (2, 0, 0), (4, 0, 0)])
def test_backfill_writes_into_given_tensors_by_the_numbers_that_are_held(held):
    step, _ = made()
    ids, weights = torch.empty_like(step.ids), torch.empty_like(step.weights)
    counts = torch.zeros(3, len(FIELDS), dtype=torch.int64)
    numbers = None if held is None else torch.tensor(held, dtype=torch.int32)
    given = (*step.slots, step.scores, None)
    backfill_into(*given, BackfillOptions(1, 0), ids, weights, counts, numbers)
    expected = backfill_definition(*given, BackfillOptions(*(held or (1, 0))))
    assert_same((ids, weights, counts[2]), expected)
    assert (counts[2, 4] > 0) == (held != (4, 0, 0))


def test_what_no_backend_takes_goes_to_the_definition_which_refuses_it():
    step, table = made()
    assert backend_name(step.ids, step.weights, 16) == "cpu"
    assert backend_name(step.ids, step.weights.double(), 16) == "definition"
    with pytest.raises(RoutingError, match="int32 or int64"):
        reroute(step.ids.to(torch.int16), step.weights, step.kinds, table, OPTIONS)
    with pytest.raises(RoutingError, match="rows, slots"):
        reroute(step.ids, step.weights[:3], step.kinds, table, OPTIONS)


def test_needs_no_triton():
    code = "import sys; sys.modules['triton'] = None; import sere.kernels; print('imported')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "imported\n", run.stderr
