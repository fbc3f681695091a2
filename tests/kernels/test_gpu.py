"""On a GPU: the same bits, captured graphs, no wait for the device. ``pytest -m gpu tests/kernels``."""

from __future__ import annotations

import pytest
import torch

from sere.kernels import (
    LayerTable,
    Options,
    backend_name,
    backfill_into,
    definition,
    gpu,
    reroute,
    reroute_into,
)
from sere.kernels import backfill as fused_backfill
from sere.kernels.backfilling import BackfillOptions
from sere.kernels.backfilling import definition as backfill_definition
from sere.routing import FIELDS, RouterScores
from tests.kernels.made import EXPERTS, assert_same, make_step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: runs the Triton kernels on it"),
]
CHOICES = [
    Options(1),
    Options(2, 0.5, merge=True),
    Options(2, 0.5, floor=0, everyone=True),
    Options(3, 0.2, floor=40, merge=True, redirect_padding=False),
    Options(9, merge=True),
]


def on_gpu(step):
    return tuple(None if part is None else part.cuda() for part in step.slots)


def scores_on_gpu(step):
    return RouterScores(step.scores.order.cuda(), step.scores.weight.cuda())


def on_cpu(parts):
    return tuple(part.cpu() for part in parts)


@pytest.mark.parametrize("options", CHOICES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("experts", EXPERTS)
def test_gives_the_definitions_bits(experts, dtype, options):
    for rows, top_k, seed in ((1, 8, 0), (16, 8, 1), (64, 6, 2), (300, 16, 3), (513, 8, 4), (4096, 8, 5)):
        step = make_step(rows, top_k, experts, seed, dtype, seed % 2 == 0, seed == 2, True, True)
        table = LayerTable.prepare(step.layer, options.threshold)
        here = LayerTable.prepare(step.layer, options.threshold, "cuda")
        assert backend_name(*on_gpu(step)[:2], experts) == "triton"
        got = on_cpu(reroute(*on_gpu(step), here, options))
        assert_same(got, definition.reroute(*step.slots, table, options))


@pytest.mark.parametrize(
    "options",
    [BackfillOptions(1), BackfillOptions(2, 0, 30, renormalise=False), BackfillOptions(0, 0, 3)],
    ids=str,
)
@pytest.mark.parametrize("totals", [False, True])
@pytest.mark.parametrize("experts", EXPERTS)
def test_backfill_gives_its_definitions_bits(experts, totals, options):
    for rows, seed in ((1, 0), (16, 1), (64, 2), (300, 3)):
        step = make_step(rows, 8, experts, seed, torch.bfloat16, True, seed == 2, True, True)
        total = step.total if totals else None
        got = fused_backfill(*on_gpu(step), scores_on_gpu(step), total.cuda() if totals else None, options)
        assert_same(on_cpu(got), backfill_definition(*step.slots, step.scores, total, options))


@pytest.mark.parametrize("rows", [16, 64])
def test_a_captured_backfill_follows_new_routing_and_the_numbers_that_are_held(rows):
    first = make_step(rows, 8, 128, mixed=True)
    inputs, scores, out = on_gpu(first), scores_on_gpu(first), buffers(first)
    held, options = torch.tensor([1, 0, 0], dtype=torch.int32, device="cuda"), BackfillOptions(1, 0)
    arguments = (*inputs, scores, None, options, *out, held)
    backfill_into(*arguments)  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        backfill_into(*arguments)
    for seed, top_s in enumerate((1, 2, 8, 1)):
        step = make_step(rows, 8, 128, seed, mixed=True, hostile=seed > 1)
        held.copy_(torch.tensor([top_s, 0, 0]))
        fresh = (*step.slots, step.scores.order, step.scores.weight)
        for place, new in zip((*inputs, scores.order, scores.weight), fresh, strict=True):
            place.copy_(new)
        out[2].zero_()
        graph.replay()
        expected = backfill_definition(*step.slots, step.scores, None, BackfillOptions(top_s, 0))
        assert_same((out[0].cpu(), out[1].cpu(), out[2][2].cpu()), expected)


def buffers(step):
    counts = torch.zeros(3, len(FIELDS), dtype=torch.int64, device="cuda")
    ids, weights = torch.empty_like(step.ids, device="cuda"), torch.empty_like(step.weights, device="cuda")
    return ids, weights, counts


@pytest.mark.parametrize("rows", [16, 64, 512])
def test_a_captured_graph_follows_new_routing_and_new_row_kinds(rows):
    options = Options(1, 0.3, merge=True)
    first = make_step(rows, 8, 128, mixed=True)
    table = LayerTable.prepare(first.layer, options.threshold)
    here = LayerTable.prepare(first.layer, options.threshold, "cuda")
    inputs, out = on_gpu(first), buffers(first)
    scratch = gpu.workspace(rows, 8, 128, torch.device("cuda"))
    reroute_into(*inputs, here, options, *out, scratch)  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        reroute_into(*inputs, here, options, *out, scratch)
    out[2].zero_()
    expected_counts = torch.zeros(3, len(FIELDS), dtype=torch.int64)
    for seed in range(6):
        step = make_step(rows, 8, 128, seed, mixed=seed > 1, hostile=seed > 2)
        kinds = torch.zeros(rows, dtype=torch.int32) if step.kinds is None else step.kinds
        for held, new in zip(inputs, (step.ids, step.weights, kinds), strict=True):
            held.copy_(new)
        graph.replay()
        expected = definition.reroute(step.ids, step.weights, kinds, table, options)
        torch.testing.assert_close(out[0].cpu(), expected[0], rtol=0, atol=0)
        torch.testing.assert_close(out[1].cpu(), expected[1], rtol=0, atol=0, equal_nan=True)
        definition.add_to(expected_counts, expected[2])
    assert out[2].cpu().tolist() == expected_counts.tolist()


@pytest.mark.parametrize("rows", [16, 4096])
def test_never_waits_for_the_device_and_allocates_nothing(rows):
    step = make_step(rows, 8, 128, mixed=True)
    here = LayerTable.prepare(step.layer, 0.3, "cuda")
    inputs, out = on_gpu(step), buffers(step)
    scratch = gpu.workspace(rows, 8, 128, torch.device("cuda"))
    reroute_into(*inputs, here, Options(1, 0.3), *out, scratch)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            reroute_into(*inputs, here, Options(1, 0.3), *out, scratch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


def test_repeats_itself():
    step = make_step(512, 8, 256, hostile=True, mixed=True)
    here = LayerTable.prepare(step.layer, 0.3, "cuda")
    runs = [on_cpu(reroute(*on_gpu(step), here, Options(1, 0.3, merge=True))) for _ in range(20)]
    for run in runs[1:]:
        assert_same(run, runs[0])
