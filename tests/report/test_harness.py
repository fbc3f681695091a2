"""The section of an evaluation by tasks: figures of the record, pictures with words, and what to mind."""

import html5lib
import pytest

from sere.artifact import ModelRecord
from sere.errors import RecordError
from sere.evaluation.harness.paired import compare_pairs
from sere.evaluation.harness.record import Average, EvalRecord, TaskResult
from sere.evaluation.intervals import wilson
from sere.evaluation.record import ExpertsRecord
from sere.provenance import Provenance
from sere.report import render

RUN = Provenance.now(device="cpu", dtype="float32", seeds={"few-shot examples, sampling and intervals": 0})
PLAIN = [1.0] * 90 + [0.0] * 10
SCORES = {
    "unmodified": PLAIN,
    "none": PLAIN,
    "sere:top_s=2": [1.0] * 88 + [0.0] * 10 + [1.0] * 2,
    "sere:top_s=1": [1.0] * 60 + [0.0] * 40,
}
AFTER = {"none": 40.0, "sere:top_s=2": 18.0, "sere:top_s=1": 11.0}


def result(task, policy, **changes):
    scores = SCORES[policy]
    values = {
        "task": task,
        "part": "bundled",
        "policy": policy,
        "batch_size": 16,
        "run": RUN.created,
        "output_type": "generate_until",
        "examples": 100,
        "metric": "exact_match,none",
        "value": sum(scores) / 100,
        "interval": wilson(int(sum(scores)), 100),
        "paired": None if policy == "unmodified" else compare_pairs([(PLAIN, scores)], 0),
        "same": None if policy == "unmodified" else 0.5,
        "metrics": {"exact_match,none": sum(scores) / 100},
        "sequences": 100,
        "steps": 60,
        "mean_live": 12.5,
        "experts": ExpertsRecord(before=40.0, after=AFTER[policy], of=64, rerouted=0.2)
        if policy in AFTER
        else None,
        "seconds": 3.0,
    }
    return TaskResult(**{**values, **changes})


def average(policy):
    pair = None if policy == "unmodified" else compare_pairs([(PLAIN, SCORES[policy])], 0)
    value = sum(SCORES[policy]) / 100
    before = 40.0 if policy in AFTER else None
    return Average(
        policy=policy,
        batch_size=16,
        parts={"bundled": value},
        value=value,
        paired=pair,
        experts=AFTER.get(policy),
        before=before,
    )


@pytest.fixture
def path(tmp_path, demo):
    record = EvalRecord(
        provenance=RUN,
        runs=[RUN, RUN],
        model=ModelRecord.model_validate(demo["comparison"]["model"]),
        artifact=None,
        config={"tasks": ["bundled"], "limit": 10, "seed": 0},
        results=[result(task, policy, cut=3) for task in ("sere_add", "sere_copy") for policy in SCORES],
        averages=[average(policy) for policy in SCORES],
        measured=8,
        seconds=24.0,
    )
    record.save(tmp_path / "eval.json")
    return tmp_path / "eval.json"


def test_the_tables_hold_the_records_figures(path):
    page = render([path])
    pair = compare_pairs([(PLAIN, SCORES["sere:top_s=1"])], 0)
    low, high = pair.retained_interval
    assert f"<td>66.7% ({low:.1%} to {high:.1%})</td>" in page
    assert "<td>30 / 0</td><td>&lt;0.001</td>" in page.replace("\n", "").replace("> <", "><")
    assert "<td>11.0 (28%)</td>" in page
    assert "60.0%*" in page
    assert "90.0%*" not in page


def test_the_page_opens_with_the_policy_that_keeps_enough(path):
    page = render([path])
    assert (
        "With sere:top_s=2, sere-demo-moe reads 18.0 distinct experts per layer and step instead of 40.0"
        in page
    )
    assert "instead of 90.0%" in page


def test_what_a_reader_must_mind_is_said(path):
    page = render([path])
    assert "held 12.5 to 12.5 sequences on average, not 16 throughout" in page
    assert "6 prompts did not fit" in page
    assert "Only the first 10 examples" in page


def test_the_page_is_sound_and_every_picture_has_words(path):
    page = render([path])
    html5lib.HTMLParser(strict=True).parse(page)
    assert "Retained of the unmodified score at batch 16: " in page
    assert "Quality against distinct experts, batch 16 (eval.json)" in page


def test_a_record_that_is_cut_short_is_named(path):
    path.write_text(path.read_text()[:900])
    with pytest.raises(RecordError, match=r"eval.json is cut short"):
        render([path])
