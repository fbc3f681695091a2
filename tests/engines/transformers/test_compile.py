"""``torch.compile``: traced hooks, no recompilation per step, and no stale code."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters as dynamo
from transformers import CompileConfig

import sere
from tests.engines.transformers import small
from tests.engines.transformers.drive import random_artifact, random_ids

POLICY, SCORED = "sere:top_s=1,floor=0", "oea:top_s=1,floor=0"
STATIC = {
    "max_new_tokens": 8,
    "do_sample": False,
    "eos_token_id": None,
    "pad_token_id": 0,
    "cache_implementation": "static",
}


def generate(model, **options):
    ids, mask = random_ids(4, 6), torch.ones(4, 6, dtype=torch.long)
    ids[0, :3], mask[0, :3] = 0, 0
    return model.generate(ids, attention_mask=mask, **STATIC, **options)


def graphs() -> int:
    return dynamo["stats"]["unique_graphs"]


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.compiler.reset()
    dynamo.clear()
    yield
    torch.compiler.reset()


CASES = [
    ("qwen3_moe", POLICY, "aot_eager"),
    ("qwen3_moe", SCORED, "aot_eager"),
    ("deepseek_v3", SCORED, "aot_eager"),
    ("phimoe", SCORED, "aot_eager"),
    pytest.param("qwen3_moe", POLICY, "inductor", marks=pytest.mark.slow),
    pytest.param("qwen3_moe", SCORED, "inductor", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("family", "policy", "backend"), CASES)
def test_generate_with_a_compiled_forward_is_rerouted_and_restored(monkeypatch, family, policy, backend):
    model = small.build(family)
    artifact = random_artifact(model)
    plain = generate(model)
    with sere.rerouted(model, artifact, policy) as handle:
        expected, counted = generate(model), handle.counters()
    # What generate does by itself on an accelerator: one graph for all decode steps, no break in it.
    monkeypatch.setattr(type(model), "_valid_auto_compile_criteria", lambda *_: True)
    compiled = {"compile_config": CompileConfig(backend=backend, fullgraph=True, mode="default")}
    assert torch.equal(generate(model, **compiled), plain)
    assert graphs() > 0
    with sere.rerouted(model, artifact, policy) as handle:
        assert torch.equal(generate(model, **compiled), expected)
        assert handle.counters() == counted
        before = graphs()
        generate(model, **compiled)
        assert graphs() == before
    assert torch.equal(generate(model, **compiled), plain)


def test_a_compiled_model_called_directly_is_rerouted():
    model = small.build("mixtral")
    artifact, ids = random_artifact(model), random_ids(4, 6)
    compiled = torch.compile(model, backend="aot_eager")
    with sere.rerouted(compiled, artifact, "sere:top_s=1,floor=0,phase=all") as handle, torch.no_grad():
        compiled(input_ids=ids, use_cache=False)
        traced = handle.counters()
        handle.reset()
        model(input_ids=ids, use_cache=False)
        assert traced == handle.counters()
    assert traced.total["rerouted"] > 0


def test_code_compiled_before_does_not_bypass_a_policy():
    model = small.build("mixtral")
    ids = random_ids(4, 6)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        plain = compiled(input_ids=ids, use_cache=False).logits
        with sere.rerouted(model, None, "top_k:k=1,phase=all"):
            changed = compiled(input_ids=ids, use_cache=False).logits
        again = compiled(input_ids=ids, use_cache=False).logits
    assert not torch.equal(changed, plain)
    assert torch.equal(again, plain)
