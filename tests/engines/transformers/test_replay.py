"""Recorded routes give the same logits again, bit for bit."""

import pytest
import torch

import sere
from sere.bench.blocks import artifact_for
from sere.engines.transformers import Routes, recording, replaying
from sere.errors import DataError, EngineError
from sere.evaluation.decoding import LiveBatch
from tests.engines.transformers import small

FAMILIES = ["qwen3_moe", "gpt_oss", "deepseek_v3", "granitemoe"]


def decoded(model, ids, steps=4):
    """Logits of the prompt's end and of some steps, each fed with the likeliest token."""
    live = LiveBatch(model)
    logits = [live.prefill(ids, torch.ones_like(ids))]
    for _ in range(steps):
        logits.append(live.step(logits[-1].argmax(-1)))
    return torch.stack(logits)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return small.build(request.param)


@pytest.fixture(scope="module")
def ids(model):
    vocabulary = model.get_input_embeddings().weight.shape[0]
    return torch.randint(2, vocabulary, (5, 6), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def run(model, ids):
    with (
        torch.no_grad(),
        sere.rerouted(model, artifact_for(model), "sere:top_s=1,floor=0") as handle,
        recording(model) as routes,
    ):
        return decoded(model, ids), routes, handle.counters().total


def test_the_same_tokens_give_the_same_logits_bit_for_bit(model, ids, run, tmp_path):
    logits, routes, _ = run
    routes.save(tmp_path / "routes.safetensors")
    with torch.no_grad():
        assert not torch.equal(decoded(model, ids), logits)
        with replaying(model, Routes.load(tmp_path / "routes.safetensors")):
            assert torch.equal(decoded(model, ids), logits)
    assert [path.name for path in tmp_path.iterdir()] == ["routes.safetensors"]


def test_the_record_holds_what_router_and_policy_chose(run):
    _, routes, total = run
    assert routes.policy == "sere:top_s=1,floor=0"
    calls = [call for calls in routes.layers.values() for call in calls]
    assert [len(calls) for calls in routes.layers.values()] == [5] * len(routes.layers)
    assert not any(calls[0].changed.any() for calls in routes.layers.values())  # the prompt stays as routed
    assert sum(int((call.ids != call.router_ids).sum()) for call in calls) == total["rerouted"]


def test_the_hooks_come_off(model, ids, run):
    with torch.no_grad():
        before = decoded(model, ids)
        with pytest.raises(EngineError, match="no more steps"), replaying(model, run[1]):
            decoded(model, ids, steps=5)
        assert torch.equal(decoded(model, ids), before)


def test_where_two_runs_part_is_found(model, ids, run):
    with torch.no_grad(), recording(model) as plain:
        decoded(model, ids)
    layer, step, apart = run[1].difference(plain)
    assert (layer, step) == (next(iter(run[1].layers)), 1)  # the first step after the prompt
    assert 0 < int(apart.sum()) <= apart.numel()
    assert run[1].difference(run[1]) is None


def test_what_cannot_be_replayed_is_refused(model, ids, run, tmp_path):
    other = small.build("mixtral")
    with pytest.raises(EngineError, match="another model"), replaying(other, run[1]):
        pass
    with (
        sere.rerouted(model, artifact_for(model), "sere:top_s=1"),
        pytest.raises(EngineError, match="is applied to this model"),
        replaying(model, run[1]),
    ):
        pass
    with torch.no_grad(), replaying(model, run[1]), pytest.raises(EngineError, match="the same tokens"):
        decoded(model, ids[:2])
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"no tensors")
    for path in (bad, tmp_path / "nowhere"):
        with pytest.raises(DataError, match="Record them again"):
            Routes.load(path)
