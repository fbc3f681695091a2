"""The guard, and operating points by name."""

from __future__ import annotations

import pytest
import torch

import sere
from sere.artifact import OperatingPoint
from sere.errors import PolicyError
from tests.engines.transformers import small
from tests.engines.transformers.drive import random_artifact, random_ids, teacher_forced

POLICY = "sere:top_s=1,floor=0"


@pytest.fixture(scope="module")
def model():
    return small.build("qwen3_moe")


@pytest.mark.parametrize(
    ("guard", "kept"), [(5, True), (4, False), ([1, 3], True), ([2, 4], False), (None, False)]
)
def test_steps_outside_of_the_guard_stay_as_routed_bit_for_bit(model, guard, kept):
    ids = random_ids(4, 8)
    plain = teacher_forced(model, ids, prompt=3)
    with sere.rerouted(model, random_artifact(model), POLICY, guard=guard) as handle:
        logits = teacher_forced(model, ids, prompt=3)
    same = all(torch.equal(a, b) for a, b in zip(plain, logits, strict=True))
    counters = handle.counters()
    assert same == kept
    assert (counters.total["rerouted"] == 0) == kept
    # Prefill steps are larger, but nothing decodes in them.
    assert set(counters.guarded.values()) == (set() if guard is None else {5 if kept else 0})
    assert ("stay as routed" in handle.banner()) == (guard is not None)
    if guard is not None:
        handle.reset()
        assert set(handle.counters().guarded.values()) == {0}


def test_an_operating_point_is_served_by_its_name_with_its_own_guard(model):
    points = {
        "balanced": OperatingPoint(policy=POLICY, guard=(5, None)),
        "fast": OperatingPoint(policy="top_k:k=1@2"),
    }
    artifact = random_artifact(model).with_operating_points(points)
    with sere.rerouted(model, artifact, "balanced", guard="auto") as handle:
        teacher_forced(model, random_ids(4, 8), prompt=3)
    assert handle.label == "balanced"
    assert set(handle.counters().guarded.values()) == {5}
    with sere.rerouted(model, artifact, "fast") as handle:
        teacher_forced(model, random_ids(4, 8), prompt=3)
    assert handle.counters().total["rerouted"] == 2 * 4 * 5 * 2  # layers, rows, steps, dropped slots
    with pytest.raises(PolicyError, match="'fast' has none"):
        sere.apply(model, artifact, "fast", guard="auto")
    with pytest.raises(PolicyError, match="Did you mean 'balanced'"):
        sere.apply(model, artifact, "ballanced")
    with pytest.raises(PolicyError, match="sere tune"):
        sere.apply(model, None, "balanced")


def test_auto_leaves_the_steps_alone_that_the_devices_cost_model_says_do_not_pay(model):
    from sere.artifact import CostModel, PolicyCost, StepSize
    from sere.engines.transformers.describe import place

    here = place(model)
    assert here.dtype == "float32"
    sizes = (
        StepSize(rows=2, before=8, after=7, overhead=2e-3),  # saves 1 ms, takes 2
        StepSize(rows=4, before=8, after=4, overhead=2e-3),  # saves 4 ms
    )
    cost = CostModel(
        device=here.device,
        dtype=here.dtype,
        expert_bytes=1_000_000,
        fixed=1e-3,
        byte=1e-9,
        row=0.0,
        error=0.0,
        rows=(2, 4),
        policies=(PolicyCost(policy=POLICY, sizes=sizes),),
    )
    artifact = random_artifact(model).with_cost(cost)
    for rows, kept in ((2, True), (4, False)):
        ids = random_ids(rows, 8)
        plain = teacher_forced(model, ids, prompt=3)
        with sere.rerouted(model, artifact, POLICY, guard="auto") as handle:
            logits = teacher_forced(model, ids, prompt=3)
        assert all(torch.equal(a, b) for a, b in zip(plain, logits, strict=True)) == kept
        assert set(handle.counters().guarded.values()) == {5 if kept else 0}
    assert "guard: steps of fewer than 3 or more than 7 rows stay as routed" in handle.banner()
    with pytest.raises(PolicyError, match=f"{here.dtype}, and 'top_k:k=1' has none"):
        sere.apply(model, artifact, "top_k:k=1", guard="auto")
    elsewhere = random_artifact(model).with_cost(cost.model_copy(update={"device": "another"}))
    with pytest.raises(PolicyError, match="sere profile"):
        sere.apply(model, elsewhere, POLICY, guard="auto")
