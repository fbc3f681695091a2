"""The router's scores of all experts reach a policy that needs them, in every family."""

from __future__ import annotations

import pytest
import torch

import sere
from sere.engines.transformers import find_layers
from sere.errors import EngineError
from sere.kernels import FusedBackfill
from tests.engines.transformers import small
from tests.engines.transformers.drive import random_artifact, random_ids, teacher_forced, watching
from tests.engines.transformers.test_families import COVERED, NAMED, TOP_ONE
from tests.engines.transformers.witness import best, chosen, share_error, unbalance, witness

KEPT_IN_FLOAT32 = {"inkling2", "inkling2_loop"}
"""Families whose router takes no other dtype; loading keeps it so, and casting a whole model does not."""


def seen_by(model, *needs):
    """What a witness is handed in a prompt and three steps; the model's scores must not change."""
    policy, batches = witness(*needs)
    ids = random_ids(6, 7)
    plain = teacher_forced(model, ids, prompt=4)
    with sere.rerouted(model, None, policy) as handle:
        served = teacher_forced(model, ids, prompt=4)
        assert [each.layer for each in handle.reroutings] == list(handle.survey.layers)
        assert [each.name for each in handle.survey.layers] == [each.name for each in find_layers(model)]
    assert all(torch.equal(a, b) for a, b in zip(plain, served, strict=True))
    return batches


@pytest.mark.parametrize("family", sorted([*COVERED, *TOP_ONE]))
def test_scores_explain_the_routers_choice_and_weights(family):
    model = unbalance(small.build(family))
    batches = seen_by(model, "scores")
    assert len(batches) % (4 * len(find_layers(model))) == 0
    for batch in batches:
        assert batch.scores.order.shape == batch.scores.weight.shape == (len(batch.ids), batch.num_experts)
        assert best(batch.scores, batch) == chosen(batch)
        assert share_error(batch) < 1e-5


@pytest.mark.parametrize("family", sorted(set(COVERED) - KEPT_IN_FLOAT32))
def test_scores_explain_the_choice_in_half_precision_but_for_ties(family):
    model = unbalance(small.build(family)).to(torch.bfloat16)
    for batch in seen_by(model, "scores"):
        assert share_error(batch) < 0.016
        agree = [a == b for a, b in zip(best(batch.scores, batch), chosen(batch), strict=True)]
        assert sum(agree) >= 0.8 * len(agree)


VARIANTS = [
    ("cohere2_moe", {"expert_selection_fn": "sigmoid", "norm_topk_prob": True}),
    ("cohere2_moe", {"expert_selection_fn": "sigmoid", "norm_topk_prob": False}),
    ("deepseek_v3", {"norm_topk_prob": False, "routed_scaling_factor": 3.0}),
    ("deepseek_v4", {"scoring_func": "sigmoid"}),
    ("laguna", {"moe_router_logit_softcapping": 1.5}),
    ("lfm2_moe", {"use_expert_bias": False}),
    ("qwen3_moe", {"norm_topk_prob": True}),
    ("qwen3_moe", {"norm_topk_prob": False}),
]


@pytest.mark.parametrize(("family", "changes"), VARIANTS)
def test_settings_of_a_router_are_found_out_too(family, changes):
    model = unbalance(small.build(family, **changes))
    assert all(getattr(model.config, name) == value for name, value in changes.items())
    for batch in seen_by(model, "scores"):
        assert best(batch.scores, batch) == chosen(batch)
        assert share_error(batch) < 1e-5


GROUPED = {"n_group": 4, "topk_group": 2, "num_experts_per_tok": 3}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("deepseek_v2", {"topk_method": "group_limited_greedy"}),
        ("deepseek_v3", {}),
        ("glm4_moe", {}),
        ("mistral4", {}),
    ],
)
def test_with_groups_the_order_is_that_of_the_scores_before_groups_are_limited(family, changes):
    model = unbalance(small.build(family, **GROUPED, **changes))
    limited = 0
    for batch in seen_by(model, "scores"):
        assert share_error(batch) < 1e-5
        for order, experts in zip(batch.scores.order, chosen(batch), strict=True):
            groups = {expert // 2 for expert in experts}
            inside = [e for e in order.argsort(descending=True).tolist() if e // 2 in groups]
            assert set(inside[:3]) == experts
            limited += set(order.argsort(descending=True)[:3].tolist()) != experts
    assert limited > 0


@pytest.mark.parametrize("family", sorted(NAMED))
def test_backfill_serves_only_what_is_active_and_the_router_liked_next(family):
    model = unbalance(small.build(family))
    with watching(model) as routed, sere.rerouted(model, None, "oea:top_s=1,floor=0") as handle:
        with watching(model) as served:
            teacher_forced(model, random_ids(6, 7), prompt=4)
        counters = handle.counters()
    assert counters.distinct_after < counters.distinct_before
    moved = 0
    for (_, ids, weights), (_, new_ids, new_weights) in zip(routed.calls, served.calls, strict=True):
        if ids.shape[0] == 24:
            assert torch.equal(ids, new_ids)
            continue
        heaviest = weights == weights.amax(1, keepdim=True)  # of equals, the lowest expert is the first
        active = set(ids.masked_fill(~heaviest, small.EXPERTS).amin(1).tolist())
        assert set(new_ids[new_weights != 0].tolist()) <= active
        moved += int(((new_ids != ids) & (new_weights != 0)).sum())
    assert moved > 0


@pytest.mark.parametrize("policy", ["oea:top_s=1,floor=0", "xshare:size=4", "des_vote:size=4", "lynx:size=4"])
def test_backfill_gives_on_its_kernel_what_it_gives_as_plain_torch(policy):
    model, ids = small.build("qwen3_moe"), random_ids(6, 7)
    artifact = random_artifact(model)
    results = []
    for fused in (True, False):
        with sere.rerouted(model, artifact, policy) as handle:
            for each in handle.reroutings:
                assert isinstance(each.fused, FusedBackfill)
                each.fused = each.fused if fused else None
            results.append((teacher_forced(model, ids, prompt=4), handle.counters()))
    (logits, counters), (plain, counted) = results
    assert all(torch.equal(a, b) for a, b in zip(logits, plain, strict=True))
    assert counters == counted
    assert counters.total["rerouted"] > 0


def test_the_layers_input_is_what_the_experts_are_given():
    for family in ("qwen3_moe", "gpt_oss", "nemotron_h"):
        model, given = small.build(family), []
        layer = find_layers(model)[0].module
        hook = layer.register_forward_pre_hook(
            lambda _, args, kwargs, given=given: given.append((*args, *kwargs.values())[0].clone()),
            with_kwargs=True,
        )
        policy, batches = witness("hidden")
        with sere.rerouted(model, None, policy):
            teacher_forced(model, random_ids(6, 7), prompt=4)
        hook.remove()
        mine = batches[:: len(find_layers(model))]
        assert all(batch.scores is None for batch in mine)
        assert all(torch.equal(batch.hidden, rows) for batch, rows in zip(mine, given, strict=True))


def test_layers_that_choose_by_token_are_left_out_and_reported():
    model = unbalance(small.build("deepseek_v4", mlp_layer_types=["hash_moe", "moe"]))
    with pytest.warns(RuntimeWarning, match="which 1 of 2 layers do not show"):
        handle = sere.apply(model, None, "oea:top_s=1,floor=0")
    assert "not re-routed: model.layers.0.mlp.experts: a trial run" in handle.banner()
    teacher_forced(model, random_ids(6, 7), prompt=4)
    assert set(handle.counters().decode) == {"model.layers.1.mlp.experts"}
    handle.remove()


def test_a_model_without_scores_is_refused_by_name_with_the_reason():
    model = small.build("deepseek_v4", mlp_layer_types=["hash_moe"] * 2)
    with pytest.raises(
        EngineError, match=r"\(deepseek_v4\).*oea.*DeepseekV4SparseMoeBlock without input_ids"
    ):
        sere.apply(model, None, "oea:top_s=1")
    with sere.rerouted(model, None, "top_k:k=1"):  # which needs none
        teacher_forced(model, random_ids(2, 5), prompt=4)
