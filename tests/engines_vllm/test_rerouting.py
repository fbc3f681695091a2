"""One layer's step, as the custom operation runs it; no engine needed."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sere.artifact import CostModel, PolicyCost, StepSize
from sere.engines.vllm import remote
from sere.engines.vllm.counting import new_table, read
from sere.engines.vllm.loading import Engine, place_of
from sere.engines.vllm.rerouting import Rerouting
from sere.engines.vllm.rows import RowKinds
from sere.engines.vllm.scores import check_scores, scorer_of
from sere.engines.vllm.settings import Resolved, Settings
from sere.errors import EngineError, PolicyError
from sere.kernels import Fused, FusedBackfill, fused
from sere.routing import Guard, LayerStatistics, RouterScores, RoutingBatch, parse_policy
from tests.artifact import made

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


@pytest.mark.parametrize(("least", "moved"), [(3, True), (4, False)])
def test_the_guard_keeps_small_steps_as_routed_and_counts_them(least, moved):
    guarded = layer(guard=Guard(least), guarded=torch.zeros((), dtype=torch.int64))
    ids, weights = guarded.route(IDS, WEIGHTS)
    assert torch.equal(ids, IDS) != moved
    assert ids.data_ptr() != IDS.data_ptr()
    assert torch.equal(weights, WEIGHTS)
    assert int(guarded.guarded) == (not moved)
    assert read(guarded.table)["decode"]["steps"] == 1


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


def worker(policy="sere:top_s=1,floor=0", *, graphs=False):
    one = layer(policy, switch=torch.ones((), dtype=torch.bool) if graphs else None)
    resolved = Resolved(Settings(), one.policy, None)
    engine = Engine(resolved, None, (one,), one.rows, graphs, 0, policy)
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


def test_another_policy_by_layers_gives_a_layer_its_own():
    served, one = worker()
    assert remote.switch(served, f"top_k:k=1#{one.index};none") == f"top_k:k=1#{one.index};none"
    assert one.policy == parse_policy("top_k:k=1")
    remote.switch(served, f"top_k:k=1#{one.index + 1}")
    assert torch.equal(one.route(IDS, WEIGHTS)[0], IDS)


def test_under_the_guard_auto_another_policy_brings_its_own_guard():
    served, one = worker()
    one.index = made.LAYERS[0].index
    served.model_runner = SimpleNamespace(device="cpu")
    served.vllm_config = SimpleNamespace(model_config=SimpleNamespace(dtype=torch.bfloat16))
    place = place_of(served)
    assert place.dtype == "bfloat16"
    sizes = (
        StepSize(rows=2, before=6, after=5, overhead=2e-3),
        StepSize(rows=4, before=6, after=2, overhead=2e-3),
    )
    cost = CostModel(
        device=place.device, dtype=place.dtype, expert_bytes=1_000_000, fixed=0, byte=1e-9, row=0, error=0,
        rows=(2, 4), policies=(PolicyCost(policy="top_k:k=1", sizes=sizes),),
    )  # fmt: skip
    resolved = served.sere_engine.resolved
    artifact = made.artifact().with_cost(cost)
    served.sere_engine.resolved = dataclasses.replace(
        resolved, settings=Settings(guard="auto"), artifact=artifact, guard=Guard(99)
    )
    remote.switch(served, "top_k:k=1")
    assert one.guard == Guard(3, 7)
    assert one.route(IDS, WEIGHTS)[0][:2].tolist() == [[0, 0], [6, 6]]
    with pytest.raises(PolicyError, match="'top_k:k=2' has none"):
        remote.switch(served, "top_k:k=2")
    assert one.policy == parse_policy("top_k:k=1")


def test_a_wrong_policy_leaves_the_served_one():
    served, one = worker()
    with pytest.raises(PolicyError, match="no policy or operating point 'spare'"):
        remote.switch(served, "spare")
    with pytest.raises(EngineError, match="needs an artifact"):
        remote.switch(served, "sere:top_s=1")
    assert one.route(IDS, WEIGHTS)[0].tolist()[0] == [0, 6]
    assert remote.counters(served)["policy"] == "sere:top_s=1,floor=0"


def test_captured_graphs_refuse_another_policy():
    served, _ = worker(graphs=True)
    with pytest.raises(EngineError, match="only 'on', 'off', and with sere"):
        remote.switch(served, "top_k:k=1")


@pytest.fixture
def in_place(monkeypatch):
    """As on a GPU: the running graph reads the kernel's table. Here the definition reads it, by its order."""

    def definition(ids, weights, kinds, table, options):
        found = walk(table, set(ids[:, 0].tolist()))
        return found[ids.long()].to(ids.dtype), weights.clone(), torch.zeros(7, dtype=torch.int64)

    def walk(table, primary):
        target = torch.arange(8)
        for expert in range(8):
            row = [other for other in table.order[expert].tolist() if other in primary]
            target[expert] = expert if expert in primary or not row else row[0]
        return target

    monkeypatch.setattr(Fused, "in_place", lambda *_: True)
    monkeypatch.setattr(fused, "reroute", definition)


def test_captured_graphs_take_another_threshold_in_place(in_place, monkeypatch):
    served, one = worker(graphs=True)
    one.table = None
    resolved = served.sere_engine.resolved
    artifact = SimpleNamespace(operating_points={})
    served.sere_engine.resolved = dataclasses.replace(resolved, artifact=artifact)
    monkeypatch.setattr(remote, "statistics_of", lambda *_: LayerStatistics(NEAR))
    order = one.fused.table.order
    assert one.route(IDS[:2], WEIGHTS[:2])[0].tolist() == [[0, 6], [6, 0]]
    strict = "sere:top_s=1,floor=0,threshold=0.8"
    assert remote.switch(served, strict) == strict
    assert one.fused.table.order.data_ptr() == order.data_ptr()
    assert one.route(IDS[:2], WEIGHTS[:2])[0].tolist() == [[0, 6], [6, 2]]  # 2 resembles none enough
    remote.switch(served, "off")
    assert torch.equal(one.route(IDS[:2], WEIGHTS[:2])[0], IDS[:2])
    remote.switch(served, "on")
    assert one.route(IDS[:2], WEIGHTS[:2])[0].tolist() == [[0, 6], [6, 2]]
    with pytest.raises(EngineError, match="only 'on', 'off', and with sere"):
        remote.switch(served, "sere:top_s=2,floor=0")


@pytest.mark.parametrize("policy", ["oea:top_s=1,floor=0", "xshare:size=2,floor=0"])
def test_policies_get_the_routers_scores(policy):
    router = SimpleNamespace(scoring_func="sigmoid", e_score_correction_bias=torch.tensor([0.0] * 7 + [3.0]))
    one = layer(policy, scorer=scorer_of(router))
    logits = torch.arange(24.0).view(3, 8).remainder(7)
    scores = RouterScores(logits.sigmoid() + router.e_score_correction_bias, logits.sigmoid())
    kinds = one.rows.of(3)
    batch = RoutingBatch(IDS, WEIGHTS, 8, kinds, scores)
    wanted = parse_policy(policy).route(batch, LayerStatistics(NEAR), redirect_padding=True)
    ids, weights = one.route(IDS, WEIGHTS, torch.zeros(3, 5), logits)
    assert torch.equal(ids, wanted.ids)
    assert torch.equal(weights, wanted.weights)
    assert not torch.equal(ids, IDS)


@pytest.mark.parametrize("policy", ["oea:top_s=1,floor=0", "xshare:size=2,floor=0", "des_vote:size=2"])
@pytest.mark.parametrize("rows", [2, 3])
def test_a_policy_that_backfills_counts_on_its_kernel_what_it_counts_as_plain_torch(policy, rows):
    logits = torch.arange(24.0).view(3, 8).remainder(7)[:rows]
    scorer = scorer_of(SimpleNamespace(scoring_func="softmax"))
    fast, plain = (layer(policy, scorer=scorer, decode=(True, False)) for _ in range(2))
    assert isinstance(fast.fused, FusedBackfill)
    plain.fused = None
    got, wanted = (one.route(IDS[:rows], WEIGHTS[:rows], None, logits) for one in (fast, plain))
    assert torch.equal(got[0], wanted[0])
    assert torch.equal(got[1], wanted[1])
    assert read(fast.table) == read(plain.table)
    assert sum(counts["rerouted"] for counts in read(fast.table).values()) > 0


def test_captured_graphs_take_other_numbers_of_a_policy_that_backfills(monkeypatch):
    served, one = worker("oea:top_s=1,floor=0", graphs=True)
    one.scorer = scorer_of(SimpleNamespace(scoring_func="softmax"))
    artifact = SimpleNamespace(operating_points={})
    served.sere_engine.resolved = dataclasses.replace(served.sere_engine.resolved, artifact=artifact)
    monkeypatch.setattr(remote, "statistics_of", lambda *_: LayerStatistics(NEAR))
    monkeypatch.setattr(FusedBackfill, "in_place", lambda *_: True)  # as on a GPU: the graph reads `held`
    held, logits = one.fused.held, torch.arange(16.0).view(2, 8).remainder(7)
    moved = one.route(IDS[:2], WEIGHTS[:2], None, logits)[0]
    assert moved.tolist() != IDS[:2].tolist()
    remote.switch(served, "oea:top_s=1,floor=3")
    assert one.fused.held is held
    assert held.tolist() == [1, 3, 0]
    remote.switch(served, "off")
    assert held.tolist() == [2, 0, 0]
    assert torch.equal(one.route(IDS[:2], WEIGHTS[:2], None, logits)[0], IDS[:2])
    remote.switch(served, "on")
    assert held.tolist() == [1, 3, 0]
    with pytest.raises(EngineError, match="with policies that backfill"):
        remote.switch(served, "xshare:size=2")


@pytest.mark.parametrize(
    "router", [{"custom_routing_function": print, "scoring_func": "softmax"}, {"scoring_func": "own"}, {}]
)
def test_a_router_that_does_not_say_how_it_scores_is_refused(router):
    one = layer("oea:top_s=1", scorer=scorer_of(SimpleNamespace(**router)))
    with pytest.raises(EngineError, match="needs the router's scores of all experts, and 1 layers"):
        check_scores(one.policy, [one])
    check_scores(parse_policy("sere"), [one])


def test_a_reset_starts_counting_anew():
    served, one = worker()
    one.route(IDS, WEIGHTS)
    remote.reset(served)
    assert remote.counters(served)["layers"]["layer"]["decode"]["steps"] == 0


def test_a_worker_without_the_plugin_says_so():
    with pytest.raises(EngineError, match="started without the sere key"):
        remote.counters(SimpleNamespace())
