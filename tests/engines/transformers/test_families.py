"""Every family of the installed Transformers is re-routed, or refused with the reason."""

from __future__ import annotations

import pytest
import torch

import sere
from sere.engines.transformers import find_layers
from sere.errors import EngineError
from sere.routing import DECODE, LayerStatistics, RoutingBatch, parse_policy
from tests.engines.transformers import small
from tests.engines.transformers.drive import random_artifact, random_ids, teacher_forced, watching

REFUSED = {
    "diffusion_gemma": "denoises whole blocks",
    "doge": "product keys",
    "jetmoe": "already sorted by expert",
    "llama4": "multiplies each expert's input",
    "nllb_moe": "dense masks over all experts",
    "openai_privacy_filter": "keeps no cache",
    "switch_transformers": "one expert only",
}
"""Family to words of the reason."""

WITHOUT_DECODER = {"vitpose_backbone": "a vision backbone: nothing in it takes tokens"}
TOP_ONE = {"zaya": "its configuration allows one expert a token only, so every policy is inert"}
COVERED = sorted(set(small.families()) - set(REFUSED) - set(WITHOUT_DECODER) - set(TOP_ONE))

NAMED = {
    *("qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "mixtral", "olmoe", "gpt_oss", "glm4_moe"),
    *("granitemoe", "phimoe", "minimax", "hunyuan_v1_moe", "ernie4_5_moe", "lfm2_moe"),
}

POLICY = "sere:top_s=1,floor=0"


def test_the_tables_name_only_families_that_are_installed():
    listed = {*REFUSED, *WITHOUT_DECODER, *TOP_ONE, *small.SPECIAL}
    assert listed <= set(small.families())


def test_the_families_that_must_work_are_among_the_covered_ones():
    assert set(COVERED) >= NAMED


@pytest.mark.parametrize("family", COVERED)
def test_decode_rows_are_rerouted_and_nothing_else_is(family):
    model = small.build(family)
    ids = random_ids(6, 7)
    plain = teacher_forced(model, ids, prompt=4)
    artifact = random_artifact(model)
    with sere.rerouted(model, None, "none") as handle:
        untouched = teacher_forced(model, ids, prompt=4)
        assert handle.counters().total["rerouted"] == 0
    assert all(torch.equal(a, b) for a, b in zip(plain, untouched, strict=True))
    with watching(model) as routed, sere.rerouted(model, artifact, POLICY) as handle:
        with watching(model) as served:
            changed = teacher_forced(model, ids, prompt=4)
        counters = handle.counters()
    assert torch.equal(changed[0], plain[0])
    assert not torch.equal(changed[-1], plain[-1])
    layers = find_layers(model)
    loops = len(routed.calls) // (
        4 * len(layers)
    )  # a family that runs its layers in a loop runs each more than once
    for layer in layers:
        decode, prefill = counters.decode[layer.name], counters.prefill[layer.name]
        assert (decode["steps"], decode["decode_rows"]) == (3 * loops, 18 * loops)
        assert (prefill["prefill_rows"], prefill["rerouted"]) == (24 * loops, 0)
        assert decode["rerouted"] > 0
        assert decode["experts_after"] < decode["experts_before"]
    experts = {layer.name: layer.num_experts for layer in layers}
    for (name, ids_in, weights_in), (_, ids_out, weights_out) in zip(routed.calls, served.calls, strict=True):
        if ids_in.shape[0] == 24:
            assert torch.equal(ids_in, ids_out)
            continue
        batch = RoutingBatch(ids_in, weights_in, experts[name], torch.full((6,), DECODE))
        similarity = LayerStatistics(artifact.similarity(name))
        expected = parse_policy(POLICY).route(batch, similarity)
        assert torch.equal(expected.ids, ids_out)
        assert torch.equal(expected.weights, weights_out)


@pytest.mark.parametrize("family", sorted(REFUSED))
def test_a_family_of_another_form_is_refused_by_name_with_the_reason(family):
    model = small.build(family)
    with pytest.raises(EngineError, match=REFUSED[family]) as raised, sere.rerouted(model, None, "none"):
        pass
    assert type(model).__name__ in str(raised.value)


@pytest.mark.parametrize("family", sorted(TOP_ONE))
def test_one_expert_a_token_leaves_nothing_to_reroute_and_says_so(family):
    model = small.build(family)
    assert {layer.top_k for layer in find_layers(model)} == {1}
    with pytest.warns(RuntimeWarning, match="changes nothing in this model"):
        sere.apply(model, random_artifact(model), POLICY)
    sere.remove(model)


@pytest.mark.parametrize("family", sorted(WITHOUT_DECODER))
def test_a_family_without_a_decoder_is_listed_for_that_reason_only(family):
    with pytest.raises(LookupError):
        small.decoder_class(family)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("family", sorted(NAMED))
def test_generate_counts_the_same_rows_in_every_family_with_padding_left_out(family, cache):
    model = small.build(family)
    ids, mask = random_ids(4, 6), torch.ones(4, 6, dtype=torch.long)
    ids[0, :3], mask[0, :3] = 0, 0
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    options["cache_implementation"] = cache if cache == "static" else None
    with sere.rerouted(model, random_artifact(model), POLICY) as handle:
        model.generate(ids, attention_mask=mask, **options)
        counters = handle.counters()
    for layer in find_layers(model):
        assert counters.prefill[layer.name]["prefill_rows"] == 21
        assert (counters.decode[layer.name]["steps"], counters.decode[layer.name]["decode_rows"]) == (3, 12)
    assert counters.total["rerouted"] > 0


@pytest.mark.parametrize("family", sorted(NAMED))
def test_half_precision_is_rerouted_and_none_is_exact_in_it(family):
    model = small.build(family).to(torch.bfloat16)
    ids = random_ids(6, 6)
    plain = teacher_forced(model, ids, prompt=4)
    with sere.rerouted(model, None, "none"):
        untouched = teacher_forced(model, ids, prompt=4)
    assert all(torch.equal(a, b) for a, b in zip(plain, untouched, strict=True))
    with sere.rerouted(model, random_artifact(model), POLICY) as handle:
        teacher_forced(model, ids, prompt=4)
        assert sum(layer["rerouted"] for layer in handle.counters().decode.values()) > 0
