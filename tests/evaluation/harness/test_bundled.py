"""The bundled model's tasks through the harness: the numbers of ``sere compare``."""

from __future__ import annotations

from pathlib import Path

import pytest

from sere.artifact import Artifact
from sere.demo.model import load
from sere.demo.tasks import TASKS
from sere.evaluation.exact_match import bundled_examples, solve
from sere.evaluation.harness import EvalConfig, run_eval
from sere.evaluation.stepwise import Rerouting
from sere.evaluation.summarise import tasks_record
from sere.routing import parse_policy

EACH, SIZE, POLICY = 6, 8, "sere:top_s=1"


@pytest.fixture(scope="module")
def demo():
    model, tokenizer = load()
    artifact = Artifact.from_pretrained(Path(__file__).parents[3] / "docs" / "results" / "demo-artifact")
    return model, tokenizer, artifact


@pytest.fixture(scope="module")
def record(demo, tmp_path_factory):
    model, tokenizer, artifact = demo
    config = EvalConfig(batch_sizes=(SIZE,), limit=EACH)
    return run_eval(model, tokenizer, artifact, [POLICY], config, tmp_path_factory.mktemp("eval"))


def compared(demo, policy):
    model, tokenizer, artifact = demo
    rerouting = Rerouting(artifact, None if policy == "unmodified" else parse_policy(policy))
    with rerouting.on(model):
        return tasks_record(solve(model, tokenizer, bundled_examples(EACH), SIZE))


def test_all_ten_tasks_are_there(record):
    assert [result.task for result in record.at(SIZE, "unmodified")] == [f"sere_{task}" for task in TASKS]
    assert {result.examples for result in record.results} == {EACH}
    [average] = [average for average in record.averages if average.policy == "unmodified"]
    assert list(average.parts) == ["bundled"]


def test_the_unmodified_model_solves_what_it_solves_in_sere_compare(demo, record):
    mine = {result.task: result.value for result in record.at(SIZE, "unmodified")}
    assert mine == {f"sere_{task}": share for task, share in compared(demo, "unmodified").by_task.items()}


def test_a_policys_score_agrees_with_sere_compare_within_the_intervals(demo, record):
    [average] = [average for average in record.averages if average.policy == POLICY]
    theirs = compared(demo, POLICY)
    low, high = theirs.interval
    assert low <= average.value <= high
    assert average.paired.lost > average.paired.gained
    low, high = average.paired.difference_interval
    unmodified = compared(demo, "unmodified").exact_match
    assert low <= theirs.exact_match - unmodified <= high
