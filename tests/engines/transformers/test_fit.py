"""How a router scores its experts is found by a trial run that nobody else notices."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sere
from sere.engines.transformers import find_layers
from sere.engines.transformers.scores import ScoreSource, sparse_mixer
from sere.engines.transformers.sources import find_source
from sere.errors import EngineError
from tests.engines.transformers import small
from tests.engines.transformers.drive import random_ids, teacher_forced
from tests.engines.transformers.test_apply import traces
from tests.engines.transformers.witness import best, chosen, share_error, unbalance, witness

POLICY = "oea:top_s=1,floor=0"


def first_source(model):
    return find_source(model, find_layers(model)[0])


class LinearGate(nn.Module):
    """A block of the older form: the router is a plain layer, and the block chooses."""

    def __init__(self, experts, score=torch.sigmoid, name="gate"):
        super().__init__()
        self.experts, self.score, self.name = experts, score, name
        self.add_module(name, nn.Linear(32, 8, bias=False))

    def forward(self, hidden_states):
        rows = hidden_states.flatten(0, 1)
        scores = self.score(getattr(self, self.name)(rows))
        weights, ids = scores.topk(3, dim=-1)
        return self.experts(rows, ids, weights / weights.sum(-1, keepdim=True)).view_as(hidden_states)


def older(score=torch.sigmoid, name="gate"):
    torch.manual_seed(0)
    model = small.build("qwen3_moe")
    for layer in model.model.layers:
        layer.mlp = LinearGate(layer.mlp.experts, score, name)
    return model.eval()


@pytest.mark.parametrize("name", ["gate", "router"])
def test_a_plain_linear_layer_may_be_the_router(name):
    model = older(name=name)
    policy, batches = witness("scores")
    with sere.rerouted(model, None, policy):
        teacher_forced(model, random_ids(6, 7), prompt=4)
    assert all(best(batch.scores, batch) == chosen(batch) for batch in batches)
    assert max(share_error(batch) for batch in batches) < 1e-5


def test_weights_that_no_known_rule_gives_are_refused_with_that_reason():
    model = older(score=lambda logits: logits.sigmoid() ** 3)
    with pytest.raises(EngineError, match="router of LinearGate returns gives the weights of its slots"):
        sere.apply(model, None, POLICY)
    assert traces(model) == 0


def test_a_router_that_does_not_take_the_best_is_refused_with_that_reason():
    model = small.build("qwen3_moe")
    for layer in model.model.layers:

        def worst_three(rows, gate=layer.mlp.gate):
            logits = nn.functional.linear(rows, gate.weight)
            weights, ids = logits.softmax(-1).topk(3, largest=False)
            return logits, weights, ids

        layer.mlp.gate.forward = worst_three
    with pytest.raises(EngineError, match="does not choose the experts that it scores highest"):
        sere.apply(model, None, POLICY)


def test_experts_that_are_bypassed_are_refused_before_anything_runs():
    model = small.build("qwen3_moe")
    for layer in model.model.layers:
        layer.mlp.forward = lambda hidden_states: hidden_states
    with pytest.raises(EngineError, match="runs something else instead of its experts module"):
        sere.apply(model, None, POLICY)


def test_hooks_of_others_and_the_random_state_do_not_notice_the_trial_run():
    model, calls = small.build("qwen2_moe"), []
    for module in model.modules():
        module.register_forward_pre_hook(lambda *_: calls.append("before"))
        module.register_forward_hook(lambda *_: calls.append("after"))
    hooks, state = traces(model), torch.random.get_rng_state()
    assert isinstance(first_source(model), ScoreSource)
    assert not calls
    assert traces(model) == hooks
    assert torch.equal(torch.random.get_rng_state(), state)
    with torch.no_grad():
        model(input_ids=random_ids(1, 3))
    assert calls


def test_the_experts_do_not_run_in_it():
    model = small.build("gpt_oss")
    layer = find_layers(model)[0]

    def refuse(*args):
        raise AssertionError("the experts ran")

    layer.module.forward = refuse
    assert isinstance(find_source(model, layer), ScoreSource)


def test_a_selection_bias_of_zero_is_watched_all_the_same():
    source = first_source(small.build("deepseek_v3"))
    assert source.bias is not None
    assert source.bias.name == "e_score_correction_bias"


def test_a_bias_inside_the_logits_is_not_added_again():
    model = small.build("gpt_oss")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.router.bias.copy_(torch.arange(8) * 0.01)
    assert first_source(model).bias is None


def test_a_bias_is_read_when_it_is_used():
    model = unbalance(small.build("deepseek_v3"))
    source, logits = first_source(model), torch.zeros(1, 8)
    with torch.no_grad():
        source.bias.owner.e_score_correction_bias.copy_(torch.arange(8))
    assert torch.equal(source.scores(logits).order, torch.arange(8)[None] + 0.5)
    assert torch.equal(source.scores(logits).weight, torch.full((1, 8), 0.5))


def test_scales_of_single_experts_weigh_and_do_not_choose():
    model = unbalance(small.build("gemma4"))
    source = first_source(model)
    scores = source.scores(torch.full((1, 8), 0.125))
    assert source.scale.name == "per_expert_scale"
    assert torch.equal(scores.order, torch.full((1, 8), 0.125))
    assert torch.equal(scores.weight[0], source.scale.read() * 0.125)


def test_experts_without_weights_share_the_softmax_and_are_left_out():
    model = unbalance(small.build("longcat_flash"))
    source, logits = first_source(model), torch.zeros(2, 10)
    assert torch.allclose(source.scores(logits, 8).weight, torch.full((2, 8), 0.1))


def test_a_sparse_mixer_weighs_an_expert_against_near_ones_below_it():
    logits = torch.tensor([[1.0, 0.99, 0.5, 0.5, -1.0]])
    near = torch.tensor(0.01).exp()
    expected = torch.tensor([[1 / (1 + 1 / near), 1.0, 0.5, 1.0, 1.0]])
    assert torch.allclose(sparse_mixer(logits, 0.02), expected)


def test_hooks_on_the_router_come_off_with_the_others():
    model = unbalance(small.build("deepseek_v3"))
    with pytest.raises(ZeroDivisionError), sere.rerouted(model, None, POLICY) as handle:
        1 / 0  # noqa: B018
    assert all(not each.source.module._forward_hooks for each in handle.reroutings)
    assert traces(model) == 0


def test_no_logits_stay_after_a_forward_or_a_removal():
    model = small.build("qwen3_moe")
    with sere.rerouted(model, None, POLICY) as handle:
        teacher_forced(model, random_ids(2, 5), prompt=4)
        assert not handle._steps.current.logits
        with torch.no_grad():
            model.model.layers[0].mlp.gate(torch.randn(4, 32))
        assert list(handle._steps.current.logits) == ["model.layers.0.mlp.experts"]
    assert not handle._steps.current.logits


def test_experts_called_without_their_router_are_an_error_that_says_so():
    model = small.build("qwen3_moe")
    layer = find_layers(model)[0]
    ids, weights = torch.tensor([[0, 1, 2]]), torch.tensor([[0.5, 0.3, 0.2]])
    with (
        sere.rerouted(model, None, POLICY),
        torch.no_grad(),
        pytest.raises(EngineError, match="runs on 1 rows, and its router has not run; oea needs"),
    ):
        layer.module(torch.randn(1, 32), ids, weights)
