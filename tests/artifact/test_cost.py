"""Predictions of a cost model, and its place in an artifact."""

from __future__ import annotations

import json

import pytest

from sere.artifact import Artifact, CostModel, PolicyCost, StepSize, predict_seconds, predict_speedup
from sere.artifact.cost import predicted, saving
from sere.errors import ArtifactError
from tests.artifact.made import artifact

SIZES = (
    StepSize(rows=4, before=24, after=8, overhead=1e-3),
    StepSize(rows=16, before=48, after=24, overhead=2e-3),
)
COST = CostModel(
    device="a processor",
    dtype="float32",
    expert_bytes=1_000_000,
    fixed=5e-3,
    byte=1e-9,
    row=1e-3,
    error=0.02,
    rows=(4, 16),
    policies=(PolicyCost(policy="sere:top_s=2,threshold=0.3", sizes=SIZES),),
)


def test_a_step_is_the_sum_of_its_parts():
    assert predict_seconds(COST, 4, 24) == pytest.approx(5e-3 + 24e-3 + 4e-3)
    assert predict_seconds(COST, 4, 24, overhead=1e-3) == pytest.approx(34e-3)


def test_the_speed_up_is_the_ratio_of_two_steps():
    assert predict_speedup(COST, 4, 24, 8) == pytest.approx(33 / 17)
    assert predict_speedup(COST, 4, 24, 8, overhead=1e-3) == pytest.approx(33 / 18)
    assert predict_speedup(COST, 4, 24, 24) == 1


def test_a_model_that_costs_nothing_predicts_nothing():
    free = COST.model_copy(update={"fixed": 0.0, "byte": 0.0, "row": 0.0})
    with pytest.raises(ArtifactError, match="Measure anew"):
        predict_speedup(free, 4, 24, 8)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (1, (24, 8, 1e-3)),
        (4, (24, 8, 1e-3)),
        (10, (36, 16, 1.5e-3)),
        (16, (48, 24, 2e-3)),
        (32, (48, 24, 4e-3)),
    ],
)
def test_expectations_are_linear_between_sizes_and_cautious_beyond(rows, expected):
    size = COST.policies[0].at(rows)
    assert (size.before, size.after, size.overhead) == pytest.approx(expected)
    assert size.rows == rows


def test_a_policys_prediction_takes_its_overhead_into_account():
    policy = COST.policies[0]
    assert predicted(COST, policy, 4) == pytest.approx(33 / 18)
    assert saving(COST, policy, 4) == pytest.approx(16e-3 - 1e-3)


def test_a_policy_is_found_however_it_is_written():
    found = COST.of("sere:threshold=0.3,top_s=2")
    assert found.policy == "sere:top_s=2,threshold=0.3"
    with pytest.raises(ArtifactError, match=r"no measurement of 'sere:top_s=1'.*--write"):
        COST.of("sere:top_s=1")
    with pytest.raises(ArtifactError, match="no measurement"):
        COST.of("sere:top_s=2,threshold=0.3", metric="cosine")


@pytest.mark.parametrize(
    "wrong",
    [{"byte": -1.0}, {"fixed": float("nan")}, {"expert_bytes": 0}, {"speed": 3}, {"row": float("inf")}],
)
def test_a_cost_model_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="1 validation error"):
        CostModel.model_validate({**COST.model_dump(), **wrong})


def test_sizes_out_of_order_are_refused():
    with pytest.raises(ValueError, match="rising rows"):
        PolicyCost(policy="none", sizes=SIZES[::-1])


def test_an_artifact_keeps_one_cost_model_for_each_device_and_type(tmp_path):
    gpu = COST.model_copy(update={"device": "a GPU"})
    slower = COST.model_copy(update={"byte": 2e-9})
    made = artifact().with_cost(COST).with_cost(gpu).with_cost(slower)
    made.save_pretrained(tmp_path)
    read = Artifact.from_pretrained(tmp_path)
    assert read.costs == (gpu, slower)
    assert read.hash == artifact().hash


def test_an_artifact_without_a_cost_model_loads_as_before(tmp_path):
    artifact().save_pretrained(tmp_path)
    manifest = json.loads((tmp_path / "sere.json").read_text())
    del manifest["costs"]
    (tmp_path / "sere.json").write_text(json.dumps(manifest))
    assert Artifact.from_pretrained(tmp_path).costs == ()


def test_a_damaged_cost_model_is_named(tmp_path):
    artifact().with_cost(COST).save_pretrained(tmp_path)
    text = (tmp_path / "sere.json").read_text()
    (tmp_path / "sere.json").write_text(text.replace('"byte": 1e-09', '"byte": -1'))
    with pytest.raises(ArtifactError, match=r"damaged at costs\.0\.byte"):
        Artifact.from_pretrained(tmp_path)
