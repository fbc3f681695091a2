"""What the user writes under the key."""

from __future__ import annotations

import pytest

from sere.artifact import CostModel, LayerRecord, ModelRecord, Place, PolicyCost, StepSize
from sere.artifact.schema import OperatingPoint
from sere.engines.vllm.settings import Settings
from sere.errors import ArtifactError, EngineError, PolicyError
from sere.routing import Guard
from tests.engines_vllm.artifacts import random_artifact

LAYERS = (LayerRecord(name="model.layers.0.mlp.experts", index=0, num_experts=8, top_k=2),)
MODEL = ModelRecord.describe(id="m", architecture="a", hidden_size=4, layers=LAYERS)


@pytest.fixture
def folder(tmp_path):
    points = {
        "balanced": OperatingPoint(policy="sere:top_s=1,threshold=0.25", metric="frobenius"),
        "guarded": OperatingPoint(policy="sere:top_s=1", guard=(6, 256)),
    }
    random_artifact(MODEL, LAYERS).with_operating_points(points).save_pretrained(tmp_path)
    return str(tmp_path)


def test_parameters_of_the_recipe_stand_beside_the_other_keys(folder):
    raw = {"artifact": folder, "policy": "sere", "top_s": 2, "threshold": 0.5}
    resolved = Settings.read(raw).resolve("somewhere/else")
    assert resolved.policy.select.top_s == 2
    assert resolved.policy.fill.threshold == 0.5
    assert resolved.label == "sere:top_s=2,threshold=0.5"
    assert resolved.artifact is not None


def test_a_short_form_will_do(folder):
    resolved = Settings.read({"artifact": folder, "policy": "sere:top_s=1,merge=true"}).resolve("x")
    assert resolved.policy.merge is True
    assert resolved.label == "sere:top_s=1,merge=true"


def test_the_default_is_sere_with_the_artifact_beside_the_weights(folder):
    resolved = Settings.read({}).resolve(folder)
    assert resolved.policy.name == "sere"
    assert resolved.artifact.model.id == "m"


def test_a_guard_is_rows_or_what_the_operating_point_was_tuned_with(folder):
    def guard(policy, given):
        raw = {"artifact": folder, "policy": policy, "guard": given}
        return Settings.read(raw).resolve("x").guard

    assert guard("sere", 8) == Guard(8)
    assert guard("sere", [4, 64]) == Guard(4, 64)
    assert guard("sere", None) is None
    assert guard("guarded", "auto") == Guard(6, 256)
    with pytest.raises(PolicyError, match="'balanced' has none"):
        guard("balanced", "auto")
    with pytest.raises(PolicyError, match="whole numbers of rows"):
        Settings.read({"guard": 0})


def test_the_guard_auto_waits_for_the_workers_device_where_there_are_cost_models(tmp_path):
    here = Place("a processor", "bfloat16")
    size = StepSize(rows=4, before=6, after=4, overhead=1e-3)  # saves 2 ms
    cost = CostModel(
        device=here.device,
        dtype=here.dtype,
        expert_bytes=1_000_000,
        fixed=0.0,
        byte=1e-9,
        row=0.0,
        error=0.0,
        rows=(4, 4),
        policies=(PolicyCost(policy="sere:top_s=1,threshold=0.5", sizes=(size,)),),
    )
    random_artifact(MODEL, LAYERS).with_cost(cost).save_pretrained(tmp_path)
    raw = {"artifact": str(tmp_path), "policy": "sere", "top_s": 1, "threshold": 0.5, "guard": "auto"}
    assert Settings.read(raw).resolve("x").guard is None
    assert Settings.read(raw).resolve("x", place=here).guard == Guard(1, 7)
    with pytest.raises(PolicyError, match="on a GPU in bfloat16"):
        Settings.read(raw).resolve("x", place=Place("a GPU", "bfloat16"))
    with pytest.raises(PolicyError, match="has none"):
        Settings.read({**raw, "top_s": 2}).resolve("x", place=here)


def test_an_operating_point_of_the_artifact_can_be_named(folder):
    resolved = Settings.read({"artifact": folder, "policy": "balanced"}).resolve("x")
    assert resolved.policy.select.top_s == 1
    assert resolved.policy.fill.threshold == 0.25
    assert resolved.metric == "frobenius"


def test_none_needs_no_artifact(tmp_path):
    assert Settings.read({"policy": "none"}).resolve(str(tmp_path)).artifact is None


@pytest.mark.parametrize(
    ("raw", "error", "message"),
    [
        ({"artefact": "x"}, EngineError, "no key 'artefact'.*Did you mean 'artifact'"),
        ({"topS": 2}, EngineError, "no key 'topS'.*Did you mean 'top_s'"),
        ({"policy": "top_k", "threshold": 1}, EngineError, "no key 'threshold' for policy 'top_k'"),
        ({"parameters": {}}, EngineError, "no key 'parameters'"),
        ({"artifact": 3}, EngineError, "artifact cannot be 3"),
        ({"counting": "yes"}, EngineError, "counting cannot be 'yes'"),
        ({"top_s": 0}, PolicyError, "top_s must be at least 1"),
        ({"policy": "sere:tops=1"}, PolicyError, "Did you mean 'top_s'"),
        ("sere", EngineError, "must be an object, got 'sere'"),
    ],
)
def test_a_mistake_is_named(raw, error, message):
    with pytest.raises(error, match=message):
        Settings.read(raw)


def test_an_unknown_policy_is_named_with_the_closest(folder):
    with pytest.raises(
        PolicyError, match=r"no policy or operating point 'ballanced'.*Did you mean 'balanced'"
    ):
        Settings.read({"artifact": folder, "policy": "ballanced"}).resolve("x")


def test_a_missing_artifact_says_how_to_make_one(tmp_path):
    with pytest.raises(EngineError, match=r"none lies beside the weights.*sere calibrate"):
        Settings.read({}).resolve(str(tmp_path))


def test_an_artifact_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ArtifactError):
        Settings.read({"artifact": str(tmp_path / "gone")}).resolve("x")
