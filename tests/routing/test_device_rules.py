"""What serving engines need: no host synchronisation, no data-dependent shapes, compilable."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

from sere.routing import FIELDS, LayerStatistics, RoutingBatch, count, make_policy

POLICIES = [
    make_policy("none"),
    make_policy("top_k", k=2),
    make_policy("sere", top_s=1, threshold=0.4, merge=True),
    make_policy("sere", top_s=2, floor=0, phase="all"),
]


def run(policy, ids, weights, kinds, similarity):
    batch = RoutingBatch(ids, weights, 16, kinds)
    routes = policy.route(batch, LayerStatistics(similarity), redirect_padding=True)
    return routes.ids, routes.weights, routes.empty, routes.active, count(batch, routes)


def inputs(rows: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.rand(rows, 16, generator=generator).argsort(1)[:, :4]
    weights = torch.rand(rows, 4, generator=generator)
    kinds = torch.randint(0, 3, (rows,), generator=generator)
    return ids, weights, kinds, torch.rand(16, 16, generator=generator)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_runs_on_the_meta_device_so_no_shape_depends_on_data(policy):
    out = run(policy, *(tensor.to("meta") for tensor in inputs(7)))
    assert [tuple(tensor.shape) for tensor in out] == [(7, 4), (7, 4), (7, 4), (16,), (len(FIELDS),)]


class NothingCrosses(TorchFunctionMode):
    """Fails where a number travels between the host and the device."""

    crossing = frozenset(
        ("tensor", "as_tensor", "from_numpy", "item", "tolist", "cpu", "numpy", "nonzero", "unique", "equal")
    ) | {"masked_select", "allclose", "__bool__", "__int__", "__float__", "__index__"}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func.__name__ not in self.crossing, f"{func.__name__} would wait for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_no_number_travels_between_host_and_device(policy):
    drawn = inputs(7)
    with NothingCrosses():
        run(policy, *drawn)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_compiles_into_one_graph_with_the_same_result(policy):
    torch._dynamo.reset()
    compiled = torch.compile(lambda *tensors: run(policy, *tensors), fullgraph=True, backend="aot_eager")
    for rows in (5, 9):
        drawn = inputs(rows, seed=rows)
        for got, expected in zip(compiled(*drawn), run(policy, *drawn), strict=True):
            assert torch.equal(got, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: checks that nothing waits for it")
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_never_waits_for_the_gpu(policy):
    drawn = [tensor.cuda() for tensor in inputs(64)]
    run(policy, *drawn)
    torch.cuda.set_sync_debug_mode("error")
    try:
        got = run(policy, *drawn)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for mine, expected in zip(got, run(policy, *inputs(64)), strict=True):
        torch.testing.assert_close(mine.cpu(), expected)


def test_counters_say_what_happened():
    ids = torch.tensor([[0, 5], [6, 2], [7, 7]])
    kinds = torch.tensor([0, 1, 2])
    batch = RoutingBatch(ids, torch.tensor([[0.6, 0.4]] * 3), 8, kinds)
    index = torch.arange(8, dtype=torch.float32)
    layer = LayerStatistics(1 - (index[:, None] - index).abs() / 8)
    routes = make_policy("sere", top_s=1, floor=0).route(batch, layer)
    counted = dict(zip(FIELDS, count(batch, routes).tolist(), strict=True))
    assert counted == {
        "steps": 1,
        "decode_rows": 1,
        "prefill_rows": 1,
        "slots": 4,
        "rerouted": 1,
        "experts_before": 4,
        "experts_after": 3,
    }


def test_a_step_of_padding_only_counts_for_nothing():
    batch = RoutingBatch(torch.tensor([[0, 5]]), torch.tensor([[0.6, 0.4]]), 8, torch.tensor([2]))
    routes = make_policy("none").route(batch, LayerStatistics())
    assert count(batch, routes).tolist() == [0] * len(FIELDS)
