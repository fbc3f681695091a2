"""Measured steps read exactly as many experts as they were told to, whatever the rows."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from sere.errors import DataError, PolicyError
from sere.evaluation.decoding import LiveBatch
from sere.evaluation.stepwise import ExpertCount, Rerouting
from sere.profiling import ProfileConfig, profile
from sere.profiling.expect import expect
from sere.profiling.forced import dealt, forced
from sere.profiling.measure import expert_bytes, levels, measure_steps
from sere.routing import parse_policy
from tests.engines.transformers import small
from tests.engines.transformers.drive import random_artifact, random_ids

CONFIG = ProfileConfig(batch_sizes=(1, 2, 4), levels=3, steps=2, rounds=2, prompt_tokens=2, expected_tokens=3)


@pytest.fixture(scope="module")
def model():
    return small.build("qwen3_moe").eval()


def seen(model, run) -> set[int]:
    """Distinct experts that each call of each experts module was given, in single-token steps."""
    counts = set()
    layers = [module for module in model.modules() if type(module).__name__.endswith("Experts")]
    assert len(layers) > 1
    hooks = [
        layer.register_forward_pre_hook(lambda _, args: counts.add(args[1].unique().numel()))
        for layer in layers
    ]
    run()
    for hook in hooks:
        hook.remove()
    return counts


@pytest.mark.parametrize(("rows", "experts"), [(1, 2), (4, 2), (4, 5), (4, 8)])
def test_forced_steps_read_that_many_experts_in_every_layer(model, rows, experts):
    live = LiveBatch(model)
    with forced(model) as state, torch.inference_mode():
        live.prefill(random_ids(rows, 3), torch.ones(rows, 3, dtype=torch.long))
        state.prepare(rows, experts, torch.Generator().manual_seed(0))
        assert seen(model, lambda: live.step(random_ids(rows, 1)[:, 0])) == {experts}


@pytest.mark.parametrize(
    ("slots", "rows", "experts"), [(2, 1, 2), (8, 16, 8), (8, 16, 9), (8, 16, 60), (8, 16, 128), (4, 3, 11)]
)
def test_slots_are_dealt_to_every_expert_and_to_none_twice_in_a_row(slots, rows, experts):
    for seed in range(20):
        ids = dealt(slots, rows, experts, torch.Generator().manual_seed(seed))
        assert ids.shape == (rows, slots)
        assert ids.unique().tolist() == list(range(experts))
        assert all(row.unique().numel() == slots for row in ids)


def test_slots_are_dealt_unevenly_as_routers_do_it():
    counts = dealt(8, 48, 64, torch.Generator().manual_seed(0)).flatten().bincount()
    assert counts.min() <= 2
    assert counts.max() >= 12  # six each if they were even


def test_nothing_stays_on_the_model(model):
    ids = random_ids(2, 6)
    plain = model(ids).logits
    measure_steps(model, CONFIG)
    expect(model, ids, Rerouting(None, parse_policy("top_k:k=1")), 2)
    assert torch.equal(model(ids).logits, plain)


def test_every_shape_is_measured(model):
    steps = measure_steps(model, CONFIG)
    shapes = {(step.rows, step.experts) for step in steps}
    top_k = model.config.num_experts_per_tok
    assert {rows for rows, _ in shapes} == {1, 2, 4}
    assert min(experts for _, experts in shapes) == top_k
    assert max(experts for rows, experts in shapes if rows == 4) == min(model.config.num_experts, 4 * top_k)
    assert all(0 < step.low <= step.seconds <= step.high for step in steps)


def test_levels_are_a_factor_apart():
    assert levels(8, 128, 5) == [8, 16, 32, 64, 128]
    assert levels(8, 8, 5) == [8]
    assert levels(2, 4, 9) == [2, 3, 4]


def test_an_experts_bytes_are_its_weights_in_all_layers(model):
    config = model.config
    weights = 3 * config.hidden_size * config.moe_intermediate_size
    assert expert_bytes(model) == config.num_hidden_layers * weights * 4


def test_expectations_are_what_decoding_counts(model):
    ids, policy = random_ids(4, 8), parse_policy("sere:top_s=1,floor=0")
    rerouting = Rerouting(random_artifact(model), policy)
    size = expect(model, ids, rerouting, 3)
    live, count = LiveBatch(model), ExpertCount()
    with torch.inference_mode(), rerouting.on(model) as handle:
        live.prefill(ids[:, :3], torch.ones(4, 3, dtype=torch.long))
        for column in range(3, 8):
            live.step(ids[:, column])
        count.add_all(handle.counters().decode)
    assert (size.rows, size.before, size.after) == (4, count.mean_before, count.mean_after)
    assert size.after < size.before
    assert 0 < size.overhead < 1


def test_a_profile_holds_steps_fit_and_policies(model):
    record = profile(model, random_ids(4, 5), random_artifact(model), ["sere:top_s=1", "top_k:k=1"], CONFIG)
    cost = record.cost
    assert [policy.policy for policy in cost.policies] == ["none", "sere:top_s=1", "top_k:k=1"]
    none, _, top = cost.policies
    assert all(size.before == size.after for size in none.sizes)
    assert [size.before for size in top.sizes] == [size.before for size in none.sizes]
    assert top.sizes[-1].after < top.sizes[-1].before
    assert cost.rows == (1, 4)
    assert cost.dtype == "float32"
    assert {step.rows for step in record.steps} == {1, 2, 4}
    text = record.model_dump_json()
    assert type(record).model_validate_json(text).model_dump_json() == text


def test_an_operating_point_is_profiled_as_the_policy_that_it_is(model):
    from sere.artifact import OperatingPoint

    points = {"fast": OperatingPoint(policy="top_k:k=1")}
    artifact = random_artifact(model).with_operating_points(points)
    record = profile(model, random_ids(4, 5), artifact, ["fast"], CONFIG)
    assert [policy.policy for policy in record.cost.policies] == ["none", "top_k:k=1"]


@pytest.mark.parametrize(
    ("ids", "policies", "error", "message"),
    [
        ((3, 5), ["none"], DataError, "needs 4 sequences of 5 tokens, got 3 of 5"),
        ((4, 4), ["none"], DataError, "got 4 of 4"),
        ((4, 5), ["sere:top_s=1"], PolicyError, "needs an artifact"),
        ((4, 5), ["seer"], PolicyError, "no policy or operating point"),
    ],
)
def test_what_cannot_be_profiled_is_refused_before_it_is_measured(
    model, monkeypatch, ids, policies, error, message
):
    monkeypatch.setattr("sere.profiling.run.measure_steps", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(error, match=message):
        profile(model, random_ids(*ids), None, policies, CONFIG)


@pytest.mark.parametrize(
    "wrong", [{"batch_sizes": (4,)}, {"batch_sizes": (4, 1)}, {"rounds": 0}, {"levels": 1}]
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(DataError):
        dataclasses.replace(CONFIG, **wrong)
