"""One layer's step, as the custom operation runs it; no engine needed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sere.engines.vllm import remote
from sere.engines.vllm.counting import new_table, read
from sere.engines.vllm.loading import Engine
from sere.engines.vllm.rerouting import Rerouting
from sere.engines.vllm.rows import RowKinds
from sere.engines.vllm.settings import Resolved, Settings
from sere.errors import EngineError, PolicyError
from sere.routing import LayerStatistics, parse_policy

IDS = torch.tensor([[0, 5], [6, 2], [7, 7]], dtype=torch.int32)
WEIGHTS = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.9, 0.1]])
NEAR = 1 - (torch.arange(8)[:, None] - torch.arange(8)).abs() / 8
"""Neighbouring experts are most alike."""


def layer(policy="sere:top_s=1,floor=0", *, decode=(True, True), **values):
    rows = RowKinds(8, "cpu")
    rows.fill(np.ones(len(decode), dtype=np.int32), np.array(decode, dtype=bool))
    table = new_table(torch.device("cpu"))
    return Rerouting("layer", 0, 8, 2, rows, parse_policy(policy), LayerStatistics(NEAR), table, **values)


def test_decode_rows_move_and_padding_follows_them():
    ids, weights = layer().route(IDS, WEIGHTS)
    assert ids.tolist() == [[0, 6], [6, 0], [0, 0]]  # padding runs too, on an expert that is read anyway
    assert ids.dtype == torch.int32
    assert torch.equal(weights, WEIGHTS)


def test_prompt_rows_stay_and_may_be_moved_to():
    ids, _ = layer(decode=(True, False)).route(IDS, WEIGHTS)
    assert ids[:2].tolist() == [[0, 6], [6, 2]]


def test_what_comes_out_shares_no_memory_with_what_went_in():
    for policy in ("none", "sere:top_s=1", "top_k:k=1"):
        ids, weights = layer(policy).route(IDS, WEIGHTS)
        assert ids.data_ptr() != IDS.data_ptr()
        assert weights.data_ptr() != WEIGHTS.data_ptr()


def test_none_gives_back_every_bit():
    ids, weights = layer("none").route(IDS, WEIGHTS)
    assert torch.equal(ids, IDS)
    assert torch.equal(weights, WEIGHTS)


def test_fewer_rows_than_the_step_has_are_kept_as_routed():
    ids, weights = layer(decode=(True,) * 4).route(IDS, WEIGHTS)
    assert torch.equal(ids, IDS)
    assert torch.equal(weights, WEIGHTS)


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, torch.uint32, torch.int64])
def test_ids_keep_the_dtype_that_the_kernel_asked_for(dtype):
    for switch in (None, torch.tensor(True)):
        ids, _ = layer(switch=switch).route(IDS.to(dtype), WEIGHTS)
        assert ids.dtype == dtype
        assert ids[:2].tolist() == [[0, 6], [6, 0]]


@pytest.mark.parametrize("policy", ["none", "sere:top_s=1,floor=0", "top_k:k=1", "sere:top_s=1,phase=all"])
@pytest.mark.parametrize("decode", [(True, True), (True, False), (False, False)])
def test_a_captured_graph_and_python_do_the_same(policy, decode):
    python, graph = layer(policy, decode=decode), layer(policy, decode=decode, switch=torch.tensor(True))
    ids, weights = IDS[: len(decode)], WEIGHTS[: len(decode)]
    for one, other in zip(python.route(ids, weights), graph.route(ids, weights), strict=True):
        assert torch.equal(one, other)
    assert read(python.table) == read(graph.table)


def test_steps_are_counted_by_what_they_held():
    one = layer()
    one.route(IDS, WEIGHTS)
    one.rows.fill(np.array([1, 1], dtype=np.int32), np.array([True, False]))
    one.route(IDS, WEIGHTS)
    one.rows.fill(np.array([3], dtype=np.int32), np.array([False]))
    one.route(IDS, WEIGHTS)
    one.rows.clear()
    one.route(IDS, WEIGHTS)  # a step of padding only is none
    counts = read(one.table)
    assert {phase: counts[phase]["steps"] for phase in counts} == {"decode": 1, "prefill": 1, "mixed": 1}
    assert counts["decode"] == {
        "steps": 1,
        "decode_rows": 2,
        "prefill_rows": 0,
        "slots": 4,
        "rerouted": 2,
        "experts_before": 4,
        "experts_after": 2,
    }


def worker(*, graphs=False):
    one = layer(switch=torch.ones((), dtype=torch.bool) if graphs else None)
    resolved = Resolved(Settings(), one.policy, None)
    engine = Engine(resolved, None, (one,), one.rows, graphs, 0, "sere:top_s=1,floor=0")
    return SimpleNamespace(sere_engine=engine), one


@pytest.mark.parametrize("graphs", [False, True])
def test_off_passes_everything_through_and_on_undoes_it(graphs):
    served, one = worker(graphs=graphs)
    assert remote.switch(served, "off") == "off"
    assert torch.equal(one.route(IDS, WEIGHTS)[0], IDS)
    decode = read(one.table)["decode"]
    assert (decode["steps"], decode["rerouted"], decode["experts_after"]) == (1, 0, 4)
    assert remote.switch(served, "on") == "sere:top_s=1,floor=0"
    assert one.route(IDS, WEIGHTS)[0].tolist()[0] == [0, 6]


def test_another_policy_is_served_from_the_next_step_on():
    served, one = worker()
    assert remote.switch(served, "top_k:k=1") == "top_k:k=1"
    ids, weights = one.route(IDS, WEIGHTS)
    assert ids[:2].tolist() == [[0, 0], [6, 6]]
    assert weights[:2].tolist() == [[pytest.approx(1.0), 0.0], [pytest.approx(1.0), 0.0]]
    assert remote.counters(served)["policy"] == "top_k:k=1"


def test_a_wrong_policy_leaves_the_served_one():
    served, one = worker()
    with pytest.raises(PolicyError, match="no policy 'spare'"):
        remote.switch(served, "spare")
    with pytest.raises(EngineError, match="needs an artifact"):
        remote.switch(served, "sere:top_s=1")
    assert one.route(IDS, WEIGHTS)[0].tolist()[0] == [0, 6]
    assert remote.counters(served)["policy"] == "sere:top_s=1,floor=0"


def test_captured_graphs_refuse_another_policy():
    served, _ = worker(graphs=True)
    with pytest.raises(EngineError, match="only 'on' and 'off' can be switched"):
        remote.switch(served, "top_k:k=1")


def test_a_reset_starts_counting_anew():
    served, one = worker()
    one.route(IDS, WEIGHTS)
    remote.reset(served)
    assert remote.counters(served)["layers"]["layer"]["decode"]["steps"] == 0


def test_a_worker_without_the_plugin_says_so():
    with pytest.raises(EngineError, match="started without the sere key"):
        remote.counters(SimpleNamespace())
