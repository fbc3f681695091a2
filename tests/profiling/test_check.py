"""What the check of a cost model says of predictions."""

from __future__ import annotations

import pytest

from sere.artifact import CostModel, ModelRecord, PolicyCost, StepSize
from sere.evaluation.speed import Speed
from sere.evaluation.stepwise import ExpertCount
from sere.profiling import ProfileRecord
from sere.profiling.check import CostCheck, checked
from sere.provenance import Provenance

COST = CostModel(
    device="a processor",
    dtype="float32",
    expert_bytes=1_000_000,
    fixed=5e-3,
    byte=1e-9,
    row=1e-3,
    error=0.02,
    rows=(4, 16),
    policies=(
        PolicyCost(
            policy="sere:top_s=2",
            sizes=(
                StepSize(rows=4, before=24, after=8, overhead=1e-3),
                StepSize(rows=16, before=48, after=24, overhead=2e-3),
            ),
        ),
    ),
)


def a_profile() -> ProfileRecord:
    return ProfileRecord(
        provenance=Provenance.now(device="cpu", dtype="float32"),
        model=ModelRecord(id="m", architecture="a", fingerprint="f"),
        artifact=None,
        config={"rounds": 1},
        steps=[
            {"rows": 4, "experts": 8, "seconds": 0.016, "low": 0.015, "high": 0.02, "predicted": 0.017},
            {"rows": 16, "experts": 48, "seconds": 0.07, "low": 0.06, "high": 0.08, "predicted": 0.069},
        ],
        cost=COST,
        seconds=3.0,
    )


def speed(ratio: float) -> Speed:
    return Speed(100.0, ratio, ratio - 0.1, ratio + 0.1, ExpertCount(steps=10, before=400, after=100))


def test_a_prediction_comes_from_the_profile_and_once_more_from_the_experts_counted():
    result = checked(a_profile(), COST.policies[0], 10, speed(1.5))
    # At 10 rows: 36 experts, 16 under the policy, 1.5 ms of overhead; counted were 40 and 10.
    assert result.predicted == pytest.approx((5 + 36 + 10) / (5 + 16 + 10 + 1.5))
    assert result.counted == pytest.approx((5 + 40 + 10) / (5 + 10 + 10 + 1.5))
    assert (result.before, result.after, result.measured) == (40, 10, 1.5)
    assert result.error == pytest.approx(result.predicted / 1.5 - 1)


def test_the_check_sums_up_its_errors(tmp_path):
    found = [checked(a_profile(), COST.policies[0], 10, speed(ratio)) for ratio in (1.5, 1.6, 0.9)]
    record = CostCheck(stand_in="a block", profile=a_profile(), rounds=3, steps=2, results=found, seconds=9.0)
    sizes = sorted(abs(each.error) for each in found)
    assert (record.error, record.worst, record.sided) == (sizes[1], sizes[2], 2)
    record.save(tmp_path / "check.json")
    read = CostCheck.model_validate_json((tmp_path / "check.json").read_text())
    assert read.model_dump_json() == record.model_dump_json()
