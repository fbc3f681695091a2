"""Kinds of record of which none is committed, made by hand in the form that their commands write."""

import json

from sere.artifact import Artifact, ModelRecord, OperatingPoint
from sere.evaluation.sweep.estimate import Estimate
from sere.evaluation.sweep.record import Setting, Solution, SweepRecord
from sere.profiling.check import CostCheck, checked
from sere.provenance import Provenance
from sere.report import render
from tests.profiling.test_check import COST, a_profile, speed
from tests.report.conftest import RESULTS

RUN = Provenance.now(device="cpu", dtype="float32", seeds={"texts": 7})


def a_model(demo):
    return ModelRecord.model_validate(demo["comparison"]["model"])


def setting(series, policy, experts, kl):
    return Setting(
        series=series,
        policy=policy,
        batch_size=16,
        before=Estimate.of([41.0, 42.0]),
        experts=Estimate.of([experts, experts + 0.5]),
        kl=Estimate.of([kl, kl * 1.001]),
        top1=Estimate.of([0.9, 0.91]),
        perplexity_change=Estimate.of([kl / 2, kl / 2]),
    )


def test_a_sweep(tmp_path, demo):
    record = SweepRecord(
        provenance=RUN,
        model=a_model(demo),
        artifact=None,
        metric=None,
        texts_sha256="0" * 64,
        config={"seeds": 2, "shuffle": 7},
        settings=[
            setting("none", "none", 41.0, 0.0),
            setting("sere", "sere:top_s=2", 17.0, 0.1),
            setting("sere", "sere:top_s=1", 11.0, 0.4),
            setting("oea", "oea:top_s=2", 17.0, 0.05),
        ],
        solutions=[
            Solution(
                series="unmodified",
                policy="unmodified",
                batch_size=16,
                examples=50,
                exact_match=0.9,
                interval=(0.8, 0.95),
                same=1.0,
            ),
            Solution(
                series="oea",
                policy="oea:top_s=2",
                batch_size=16,
                examples=50,
                exact_match=0.88,
                interval=(0.77, 0.94),
                same=0.9,
            ),
        ],
        points=8,
        measured=8,
        seconds=60,
    )
    path = tmp_path / "sweep.json"
    record.save(path)
    page = render([path])
    assert "Every recipe over its knob: sere-demo-moe" in page
    assert "not beaten by another: sere:top_s=1, oea:top_s=2" in page
    assert "sere:top_s=2 at batch 16 (sweep.json) is beaten: oea:top_s=2" in page
    # 0.88 / 0.9 keeps 98% of the exact answers
    assert "With oea:top_s=2, sere-demo-moe reads 17.2 distinct experts" in page


def test_decoding_in_vllm_with_its_run(tmp_path):
    record = json.loads((RESULTS / "vllm_float32.json").read_text())
    record["provenance"] = RUN.model_copy(update={"git_revision": "abc123"}).model_dump()
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(record))
    page = render([path])
    assert "abc123" in page
    assert "texts: 7" in page
    # speed alone: the sentence says that quality is missing
    assert (
        "The fastest setting, sere:top_s=1,merge=true at batch 16, ran at 2.24\u00d7 (1.70 to 2.36)" in page
    )
    assert "hold no quality figures" in page


def test_operating_points_are_shown_with_what_was_measured_and_called_by_name(tmp_path):
    point = OperatingPoint(policy="oea:top_s=3@4|oea:top_s=2@16", experts=17.25, kl=[0.04, 0.05])
    artifact = Artifact.from_pretrained(RESULTS / "demo-artifact").with_operating_points({"balanced": point})
    artifact.save_pretrained(tmp_path)
    page = render([tmp_path])
    assert "<code>balanced</code></th><td>oea:top_s=3@4|oea:top_s=2@16</td>" in page
    assert "experts: 17.25; kl: 0.04 to 0.05" in page
    assert "&#34;policy&#34;: &#34;balanced&#34;" in page


def test_a_profile_and_the_check_of_a_cost_model(tmp_path):
    record = a_profile()
    record.save(tmp_path / "profile.json")
    page = render([tmp_path / "profile.json"])
    assert "What a step costs: m on a processor in float32" in page
    assert "5.00 ms + 1.000 ms for each distinct expert" in page
    assert "48.0 to 24.0" in page
    check = CostCheck(
        stand_in="a block",
        profile=record,
        rounds=3,
        steps=2,
        results=[checked(record, COST.policies[0], 10, speed(ratio)) for ratio in (1.5, 0.9)],
        seconds=9.0,
    )
    check.save(tmp_path / "check.json")
    page = render([tmp_path / "check.json"])
    assert "Does the cost model hold?" in page
    assert "1 of 2 say rightly whether the policy pays" in page
    assert "1.50\u00d7 (1.40 to 1.60)" in page
    # 51 / 32.5
    assert "1.57" in page
    assert "What a step costs: a block" in page
