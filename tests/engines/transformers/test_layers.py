"""The layers are found by what they are, and a model without any is told why."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from sere.engines.transformers import describe, find_layers
from sere.errors import EngineError
from tests.engines.transformers import small


class OtherExperts(nn.Module):
    """Stands for quantised experts that route inside a kernel."""

    def forward(self, hidden_states, routing_data, gather_idx, scatter_idx):
        return hidden_states


def test_layers_come_in_model_order_with_names_numbers_and_sizes():
    model = small.build("qwen3_moe", num_hidden_layers=3, mlp_only_layers=[1], layer_types=...)
    found = [(each.name, each.index, each.num_experts, each.top_k) for each in find_layers(model)]
    assert found == [("model.layers.0.mlp.experts", 0, 8, 3), ("model.layers.2.mlp.experts", 2, 8, 3)]


def test_the_module_is_the_models_own():
    model = small.build("mixtral")
    assert [each.module for each in find_layers(model)] == [each.mlp.experts for each in model.model.layers]


def test_experts_without_weights_are_not_counted_as_routed_ones():
    (first, _) = find_layers(small.build("longcat_flash"))
    assert (first.num_experts, first.module.total_experts) == (8, 10)


def test_a_compiled_model_is_looked_into():
    model = small.build("olmoe")
    assert [each.name for each in find_layers(torch.compile(model))] == [
        each.name for each in find_layers(model)
    ]


def test_a_dense_model_is_refused():
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    with pytest.raises(EngineError, match=r"LlamaForCausalLM \(llama\) is dense"):
        find_layers(LlamaForCausalLM(config))


def test_experts_of_another_form_are_refused_with_what_they_take():
    model = small.build("gpt_oss")
    for layer in model.model.layers:
        layer.mlp.experts = OtherExperts()
    with pytest.raises(
        EngineError, match=r"gpt_oss.*OtherExperts.forward takes \(hidden_states, routing_data"
    ):
        find_layers(model)


def test_experts_split_over_processes_are_refused():
    model = small.build("qwen3_moe")
    for layer in model.model.layers:
        layer.mlp.experts._is_expert_parallel = True
    with pytest.raises(EngineError, match="split over processes"):
        find_layers(model)


def test_two_decoders_in_one_model_are_refused():
    pair = nn.ModuleDict({"thinker": small.build("qwen3_moe"), "talker": small.build("mixtral")})
    with pytest.raises(EngineError, match=r"several decoders \(thinker and talker\).*model\.thinker"):
        find_layers(pair)


def test_experts_for_images_are_left_out():
    names = [each.name for each in find_layers(small.build("ernie4_5_vl_moe"))]
    assert names == ["layers.0.mlp.text_moe.experts", "layers.1.mlp.text_moe.experts"]


def test_the_description_names_architecture_and_width():
    record = describe(small.build("qwen3_moe"))
    assert (record.architecture, record.hidden_size) == ("qwen3_moe", 32)


@pytest.mark.parametrize("change", [{"num_experts": 16}, {"num_experts_per_tok": 2}, {"hidden_size": 64}])
def test_the_fingerprint_follows_the_routing_shape(change):
    assert (
        describe(small.build("qwen3_moe")).fingerprint
        != describe(small.build("qwen3_moe", **change)).fingerprint
    )


def test_the_fingerprint_does_not_follow_the_weights():
    model = small.build("qwen3_moe")
    before = describe(model).fingerprint
    with torch.no_grad():
        model.model.embed_tokens.weight.zero_()
    assert describe(model).fingerprint == before
