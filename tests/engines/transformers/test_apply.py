"""Applying, removing, and everything that can be wrong with it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sere
from sere.engines.transformers import find_layers
from sere.errors import ArtifactError, EngineError, PolicyError
from tests.engines.transformers import small
from tests.engines.transformers.drive import cached, random_artifact, random_ids, teacher_forced

POLICY = "sere:top_s=1,floor=0"


@pytest.fixture
def model():
    return small.build("qwen3_moe")


def traces(model: nn.Module) -> int:
    """Hooks and shadowed attributes on all modules."""
    hooks = (
        "_forward_pre_hooks",
        "_forward_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks_always_called",
    )
    names = ("_sere_handle", "__reduce_ex__", "_optimize_model_for_decode", "_prepare_special_tokens")
    return sum(
        sum(len(module.__dict__[name]) for name in hooks) + sum(name in module.__dict__ for name in names)
        for module in model.modules()
    )


def test_nothing_of_it_stays_after_the_block(model):
    with sere.rerouted(model, random_artifact(model), POLICY) as handle:
        assert handle.applied
        assert traces(model) > 0
    assert not handle.applied
    assert traces(model) == 0


def test_nothing_of_it_stays_after_an_exception(model):
    ids = random_ids(4, 5)
    plain = teacher_forced(model, ids, prompt=3)
    with pytest.raises(ZeroDivisionError), sere.rerouted(model, random_artifact(model), POLICY):
        1 / 0  # noqa: B018
    assert traces(model) == 0
    assert all(torch.equal(a, b) for a, b in zip(plain, teacher_forced(model, ids, prompt=3), strict=True))


def test_an_exception_inside_a_forward_does_not_leak_into_the_next(model):
    ids = random_ids(4, 5)
    with sere.rerouted(model, random_artifact(model), POLICY) as handle:
        with torch.no_grad():
            output = model(input_ids=ids, use_cache=True)
            with pytest.raises(IndexError):
                model(input_ids=ids + small.VOCABULARY, cache=cached(output), use_cache=True)
        handle.reset()
        teacher_forced(model, ids, prompt=3)
        layer = find_layers(model)[0].name
        assert handle.counters().prefill[layer]["prefill_rows"] == 12
        assert handle.counters().decode[layer]["decode_rows"] == 8


def test_apply_and_remove_do_the_same_without_a_block(model):
    handle = sere.apply(model, random_artifact(model), POLICY)
    teacher_forced(model, random_ids(4, 5), prompt=3)
    assert handle.counters().total["rerouted"] > 0
    sere.remove(model)
    assert traces(model) == 0


def test_counters_can_be_read_after_removal(model):
    with sere.rerouted(model, None, "top_k:k=1") as handle:
        teacher_forced(model, random_ids(4, 5), prompt=3)
    assert handle.counters().total["rerouted"] == 2 * 8 * 2  # layers, decode rows, dropped slots


def test_reset_starts_counting_anew(model):
    with sere.rerouted(model, None, "none") as handle:
        teacher_forced(model, random_ids(4, 5), prompt=3)
        handle.reset()
        assert set(handle.counters().total.values()) == {0}


def test_distinct_experts_are_means_per_layer_and_decode_step(model):
    with sere.rerouted(model, None, "top_k:k=1") as handle:
        teacher_forced(model, random_ids(1, 6), prompt=3)
        counters = handle.counters()
    assert (counters.distinct_before, counters.distinct_after) == (3.0, 1.0)


def test_without_counting_there_is_nothing_to_read(model):
    with sere.rerouted(model, None, "none", counting=False) as handle:
        teacher_forced(model, random_ids(2, 4), prompt=3)
        with pytest.raises(EngineError, match="counting=True"):
            handle.counters()


@pytest.mark.parametrize("part", [lambda model: model, lambda model: model.model, torch.compile])
def test_a_second_policy_is_refused_wherever_it_is_put(model, part):
    with sere.rerouted(model, random_artifact(model), POLICY):
        with pytest.raises(EngineError, match="applied to this model already"):
            sere.apply(part(model), None, "none")
        assert traces(model) > 0
    assert traces(model) == 0


def test_a_removed_policy_makes_room_for_another(model):
    for policy in ("none", "top_k:k=1"):
        with sere.rerouted(model, None, policy):
            pass
    assert traces(model) == 0


def test_a_handle_removes_itself_once(model):
    handle = sere.apply(model, None, "none")
    handle.remove()
    handle.remove()
    assert traces(model) == 0
    with pytest.raises(EngineError, match="no policy is applied"):
        sere.remove(model)


def test_removing_what_is_not_there_is_an_error(model):
    with pytest.raises(EngineError, match="no policy is applied"):
        sere.remove(model)


def test_a_policy_that_needs_an_artifact_says_so(model):
    with pytest.raises(EngineError, match="needs an artifact with similarity"):
        sere.apply(model, None, POLICY)
    assert traces(model) == 0


def test_an_artifact_beside_the_weights_is_found(model, tmp_path):
    artifact = random_artifact(model)
    artifact.save_pretrained(tmp_path)
    model.config._name_or_path = str(tmp_path)
    with sere.rerouted(model, None, POLICY) as handle:
        assert handle.artifact.hash == artifact.hash


def test_an_artifact_may_be_given_by_its_folder(model, tmp_path):
    random_artifact(model).save_pretrained(tmp_path)
    with sere.rerouted(model, str(tmp_path), POLICY) as handle:
        assert handle.artifact.hash == random_artifact(model).hash


def test_the_artifact_of_another_model_is_refused(model):
    other = random_artifact(small.build("qwen3_moe", num_experts=16))
    with pytest.raises(ArtifactError, match="routing shapes differ"):
        sere.apply(model, other, POLICY)
    assert traces(model) == 0


def test_an_unknown_policy_leaves_the_model_alone(model):
    with pytest.raises(PolicyError, match="there is no policy"):
        sere.apply(model, None, "seer")
    assert traces(model) == 0


def test_an_inert_policy_warns_but_none_does_not(model, recwarn):
    with sere.rerouted(model, None, "none") as handle:
        assert handle.notes == ()
    assert not recwarn
    with pytest.warns(RuntimeWarning, match="top_s=3 keeps all 3 slots, so it changes nothing in this model"):
        handle = sere.apply(model, random_artifact(model), "sere:top_s=3")
    assert "changes nothing" in handle.banner()
    sere.remove(model)


def test_each_layer_runs_under_its_own_policy(model):
    layers = find_layers(model)
    text = f"top_k:k=1#{layers[0].index};sere:top_s=1"
    with sere.rerouted(model, random_artifact(model), text) as handle:
        assert [each.policy.name for each in handle.reroutings] == ["top_k"] + ["sere"] * (len(layers) - 1)
        assert handle.reroutings[0].statistics.similarity is None
        teacher_forced(model, random_ids(4, 6), prompt=3)
        changed = [layer["rerouted"] for layer in handle.counters().decode.values()]
    assert all(changed)


def test_a_layer_that_a_policy_spares_is_no_reason_to_warn(model, recwarn):
    sere.apply(model, None, f"top_k:k=1#{find_layers(model)[0].index}").remove()
    assert not [warning for warning in recwarn if "sere" in str(warning.message)]


def test_the_banner_names_policy_layers_and_what_is_left_out():
    model = small.build("ernie4_5_vl_moe")
    with sere.rerouted(model, random_artifact(model), POLICY) as handle:
        banner = handle.banner()
    assert "sere:top_s=1,floor=0 in Ernie4_5_VLMoeTextModel" in banner
    assert "re-routed: 2 layers (top-3 of 8)" in banner
    assert "not re-routed: layers.0.mlp.vision_moe.experts: it runs image tokens" in banner
    assert handle.artifact.hash[:12] in banner


def test_experts_that_are_bypassed_are_noticed(model):
    handle = sere.apply(model, random_artifact(model), POLICY)
    for layer in model.model.layers:
        layer.mlp.forward = lambda hidden_states: hidden_states
    with torch.no_grad():
        model(input_ids=random_ids(1, 3))
    with pytest.warns(RuntimeWarning, match="nothing was re-routed"):
        handle.remove()


def test_dense_weights_over_all_experts_are_refused(model):
    def dense(self, hidden_states):
        rows = hidden_states.flatten(0, 1)
        ids = torch.zeros(rows.shape[0], 3, dtype=torch.long)
        return self.experts(rows, ids, torch.rand(rows.shape[0], 8)).view_as(hidden_states)

    for layer in model.model.layers:
        layer.mlp.forward = dense.__get__(layer.mlp)
    with (
        sere.rerouted(model, None, "top_k:k=1"),
        torch.no_grad(),
        pytest.raises(EngineError, match=r"ids of shape \(3, 3\) with weights of shape \(3, 8\)"),
    ):
        model(input_ids=random_ids(1, 3))


def test_rows_that_are_not_the_whole_step_are_kept(model):
    layer = find_layers(model)[0]
    ids, weights = torch.tensor([[0, 1, 2]]), torch.tensor([[0.5, 0.3, 0.2]])
    with sere.rerouted(model, None, "top_k:k=1") as handle, torch.no_grad():
        inside = layer.module(torch.randn(1, 32), ids, weights)
        counted = handle.counters().prefill[layer.name]
    assert inside.shape == (1, 32)
    assert (counted["prefill_rows"], counted["rerouted"]) == (1, 0)


def test_decode_keeps_the_grouped_kernel_off_the_cpu(model, monkeypatch):
    model.set_experts_implementation("grouped_mm")
    monkeypatch.setattr(type(model), "device", property(lambda _: torch.device("cuda")))

    def chosen():
        with model._optimize_model_for_decode():
            return model.get_experts_implementation()[""]

    assert chosen() == "batched_mm"
    with sere.rerouted(model, None, "none"):
        assert chosen() == "grouped_mm"
    assert chosen() == "batched_mm"


def test_the_gathering_kernel_is_warned_of(model):
    model.set_experts_implementation("batched_mm")
    with pytest.warns(RuntimeWarning, match="fewer distinct experts save nothing"):
        sere.apply(model, None, "none")
    sere.remove(model)
