"""The parallel proxy takes the very decisions of decoding step by step."""

from contextlib import contextmanager

import pytest
import torch

from sere.bench.blocks import artifact_for
from sere.engines.transformers import find_layers
from sere.evaluation.proxy import virtual_steps
from sere.evaluation.stepwise import ExpertCount, Rerouting, text_logits
from sere.routing import parse_policy
from tests.engines.transformers import small

PROMPT = 5
POLICIES = [
    "none",
    "top_k:k=2",
    "sere:top_s=1",
    "sere:top_s=2,threshold=0.6",
    "sere:top_s=1,floor=0",
    "sere:top_s=1,merge=true",
    "sere:top_s=1,phase=all",
    "oea:top_s=1",
    "xshare:size=5",
    "top_k:k=2#0;sere:top_s=1#1",
    "none#1;oea:top_s=1",
]


@contextmanager
def recorded(model):
    """Routing that reaches the experts, by layer name: lists of (ids, weights)."""
    seen = {layer.name: [] for layer in find_layers(model)}

    def keep(name):
        def hook(_module, args, kwargs):
            values = [*args, *kwargs.values()]
            seen[name].append((values[1].clone(), values[2].clone()))

        return hook

    handles = [
        layer.module.register_forward_pre_hook(keep(layer.name), with_kwargs=True)
        for layer in find_layers(model)
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def routing_step_by_step(model, rerouting, ids):
    """As :func:`text_logits` does it, with the routing that reached the experts as [B, T, K]."""
    from sere.evaluation.decoding import LiveBatch

    rows = ids.shape[0]
    with torch.inference_mode(), rerouting.on(model), recorded(model) as seen:
        live = LiveBatch(model)
        live.prefill(ids[:, :PROMPT], torch.ones_like(ids[:, :PROMPT]))
        for t in range(PROMPT, ids.shape[1] - 1):
            live.step(ids[:, t])
    return {
        name: tuple(torch.cat([call[part].view(rows, -1, 4) for call in calls], dim=1) for part in (0, 1))
        for name, calls in seen.items()
    }


def routing_in_parallel(model, artifact, policy, ids):
    rows = ids.shape[0]
    settings = {"sequences": rows, "prompt": PROMPT}
    with torch.inference_mode(), virtual_steps(model, artifact, policy, **settings), recorded(model) as seen:
        model(input_ids=ids[:, :-1], use_cache=False)
    return {name: tuple(part.view(rows, -1, 4) for part in calls[0]) for name, calls in seen.items()}


@pytest.mark.parametrize("text", POLICIES)
def test_routing_equals_that_of_stepwise_decoding(model, artifact, ids, text):
    policy = parse_policy(text)
    stepwise = routing_step_by_step(model, Rerouting(artifact, policy), ids)
    parallel = routing_in_parallel(model, artifact, policy, ids)
    assert set(stepwise) == set(parallel) == {layer.name for layer in find_layers(model)}
    for name, (expert_ids, weights) in stepwise.items():
        assert expert_ids.shape == (6, 19, 4)
        assert torch.equal(expert_ids, parallel[name][0]), name
        torch.testing.assert_close(weights, parallel[name][1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("text", POLICIES)
def test_logits_and_counts_equal_those_of_stepwise_decoding(model, artifact, ids, text, rows):
    ids = ids[:rows]
    rerouting = Rerouting(artifact, parse_policy(text))
    real, proxy = ExpertCount(), ExpertCount()
    stepwise = text_logits(model, ids, PROMPT, rerouting, "real", real)
    parallel = text_logits(model, ids, PROMPT, rerouting, "proxy", proxy)
    assert stepwise.shape == parallel.shape == (rows, 14, 257)
    torch.testing.assert_close(stepwise, parallel, rtol=1e-4, atol=1e-4)
    assert real == proxy
    assert real.steps == 2 * 14


@pytest.mark.parametrize(
    "family", ["mixtral", "gpt_oss", "deepseek_v2", "glm4_moe", "granitemoe", "qwen3_next", "ernie4_5_moe"]
)
def test_other_families_take_the_same_decisions_too(family):
    model = small.build(family)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = torch.randint(2, vocabulary, (5, 12), generator=torch.Generator().manual_seed(1))
    rerouting = Rerouting(artifact_for(model), parse_policy("sere:top_s=1,floor=0"))
    real, proxy = ExpertCount(), ExpertCount()
    stepwise = text_logits(model, ids, PROMPT, rerouting, "real", real)
    parallel = text_logits(model, ids, PROMPT, rerouting, "proxy", proxy)
    assert real == proxy
    assert real.after < real.before
    torch.testing.assert_close(stepwise, parallel, rtol=1e-4, atol=1e-4)


def test_a_wrapped_model_is_served_by_the_artifact_of_the_bare_one(model, artifact, ids):
    wrapped = torch.nn.Module()
    wrapped.inner = model
    settings = {"sequences": 6, "prompt": PROMPT}
    with virtual_steps(wrapped, artifact, parse_policy("sere:top_s=1"), **settings) as steps, torch.no_grad():
        model(input_ids=ids, use_cache=False)
    assert [name.split(".")[0] for name in steps.totals] == ["inner", "inner"]


def test_prompt_tokens_stay_as_routed(model, artifact, ids):
    unmodified = routing_in_parallel(model, None, parse_policy("none"), ids)
    rerouted = routing_in_parallel(model, artifact, parse_policy("sere:top_s=1"), ids)
    first = find_layers(model)[0].name
    assert torch.equal(unmodified[first][0][:, :PROMPT], rerouted[first][0][:, :PROMPT])
    assert not torch.equal(unmodified[first][0][:, PROMPT:], rerouted[first][0][:, PROMPT:])


def test_a_virtual_step_reads_no_more_experts_than_its_own_rows_chose_first(model, artifact, ids):
    """With S=1 and no floor, a step's experts are the first choices of its own rows, and of no others."""
    unmodified = routing_in_parallel(model, None, parse_policy("none"), ids)
    rerouted = routing_in_parallel(model, artifact, parse_policy("sere:top_s=1,floor=0"), ids)
    first = find_layers(model)[0].name
    before_ids, before_weights = unmodified[first]
    for t in range(PROMPT, 19):
        heaviest = before_ids[:, t].gather(1, before_weights[:, t].argmax(1, keepdim=True))
        assert set(rerouted[first][0][:, t].flatten().tolist()) == set(heaviest.flatten().tolist())


def test_hooks_come_off_after_an_error(model, artifact, ids):
    before = model(input_ids=ids).logits

    def fail():
        with virtual_steps(model, artifact, parse_policy("sere:top_s=1"), sequences=6, prompt=PROMPT):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert torch.equal(model(input_ids=ids).logits, before)
