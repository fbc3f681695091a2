"""An evaluation as a whole: side by side, resumable, and in two forms."""

from __future__ import annotations

import errno
import json
import os

import pytest

from sere.errors import DataError, MissingError, PolicyError, RecordError
from sere.evaluation.harness import EvalConfig, EvalRecord, installed
from sere.evaluation.harness.folder import slug

POLICY = "sere:top_s=1,floor=1"


def by_key(record):
    return {(r.task, r.policy): r.model_dump(exclude={"run", "seconds"}) for r in record.results}


def test_tasks_run_side_by_side_with_the_controls(evaluate, tmp_path):
    record = evaluate()
    assert record.policies == ["unmodified", "none", POLICY]
    assert record.measured == 6
    for result in record.results:
        assert (result.batch_size, result.cut) == (4, 0)
        assert 1 < result.mean_live <= 4
    plain, control, policy = (by_key(record)["choice", name] for name in record.policies)
    assert (plain["paired"], plain["experts"]) == (None, None)
    assert (control["same"], control["paired"]["difference"], control["paired"]["p_value"]) == (1, 0, 1)
    assert control["experts"]["before"] == control["experts"]["after"]
    assert policy["experts"]["after"] < 0.6 * policy["experts"]["before"]
    assert policy["metric"] == "acc,none"
    assert policy["paired"]["examples"] == 12
    average = next(a for a in record.averages if a.policy == POLICY)
    assert average.value == pytest.approx(sum(average.parts.values()) / 2)
    read = EvalRecord.load(tmp_path / "out" / "eval.json")
    assert read.model_dump_json() == record.model_dump_json()


def test_the_harnesss_own_files_say_the_same(evaluate, tmp_path):
    record = evaluate()
    folder = tmp_path / "out" / "harness" / f"{slug(POLICY)}_4"
    results = json.loads((folder / "results_sere.json").read_text())
    assert results["results"]["choice"]["acc,none"] == by_key(record)["choice", POLICY]["value"]
    assert results["config"]["batch_size"] == 4
    lines = [json.loads(line) for line in (folder / "samples_choice_sere.jsonl").read_text().splitlines()]
    assert [line["doc_id"] for line in lines] == list(range(12))
    assert sum(line["acc"] for line in lines) / 12 == results["results"]["choice"]["acc,none"]
    assert set(lines[0]["arguments"]) == {"gen_args_0", "gen_args_1", "gen_args_2"}


def test_interrupted_and_run_again_it_goes_on_and_nothing_is_doubled(evaluate, tmp_path):
    said = []

    def interrupt(text):
        said.append(text)
        if text.startswith("4 of 6"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(progress=interrupt)
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "cells").iterdir()}
    assert len(cells) == 3
    assert not (tmp_path / "out" / "eval.json").exists()
    record = evaluate()
    assert record.measured == 3
    assert len(record.runs) in (1, 2)  # two runs within one second have one name
    assert all(path.stat().st_mtime_ns == before for path, before in cells.items())
    assert by_key(record) == by_key(evaluate(out="whole"))
    assert evaluate().measured == 0


def test_a_further_policy_costs_only_itself(evaluate):
    evaluate()
    assert evaluate(policies=(POLICY, "top_k:k=2")).measured == 2


def test_other_settings_are_another_evaluation(evaluate):
    evaluate(limit=2)
    with pytest.raises(RecordError, match=r"limit: 2 there, 3 now.*Choose another --out"):
        evaluate(limit=3)


def test_files_that_are_cut_short_are_named(evaluate, tmp_path):
    evaluate()
    record = tmp_path / "out" / "eval.json"
    record.write_text(record.read_text()[:500])
    with pytest.raises(RecordError, match="no record of an evaluation"):
        EvalRecord.load(record)
    cell = next((tmp_path / "out" / "cells").iterdir())
    cell.write_text(cell.read_text()[:200])
    with pytest.raises(RecordError, match=f"{cell.name} is cut short"):
        evaluate()
    cell.unlink()
    assert evaluate().measured == 1


def test_a_full_disk_loses_only_the_task_that_did_not_fit(evaluate, tmp_path, monkeypatch):
    whole, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 6:  # plan, run, and two files for each of two tasks
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        evaluate()
    assert not list(tmp_path.rglob(".*"))
    monkeypatch.undo()
    assert evaluate().measured == 4


def test_prompt_scoring_refuses_a_policy_that_would_do_nothing(evaluate):
    with pytest.raises(PolicyError, match="phase=all"):
        evaluate(scoring="prompt")


def test_prompt_scoring_runs_a_policy_of_phase_all(evaluate, task_files):
    record = evaluate(
        scoring="prompt",
        policies=("sere:top_s=1,floor=1,phase=all",),
        tasks=(task_files["choice"],),
        control=False,
    )
    assert record.policies == ["unmodified", "sere:top_s=1,floor=1,phase=all"]
    assert record.results[1].same < 1 or record.results[1].paired.difference == 0


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (("sere_ad",), "Did you mean 'sere_add'"),
        (("bundled", "sere_bundled"), "names one twice"),
        (("bundled", "sere_add"), "named already"),
        (("nowhere.yaml",), "no task 'nowhere.yaml'"),
    ],
)
def test_tasks_that_are_not_there_are_named(evaluate, tasks, message):
    with pytest.raises(DataError, match=message):
        evaluate(tasks=tasks)


def test_a_missing_harness_says_what_to_install(monkeypatch):
    monkeypatch.setattr(installed.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingError, match=r"pip install 'sere-moe\[eval\]'"):
        installed.require_harness()


def test_an_old_harness_is_refused(monkeypatch):
    monkeypatch.setattr(installed.importlib.metadata, "version", lambda _name: "0.4.9.1")
    with pytest.raises(MissingError, match=r"0.4.9.1, this needs 0.4.13 or newer"):
        installed.require_harness()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": ()}, "no tasks"),
        ({"batch_sizes": (0,)}, "1 or more"),
        ({"batch_sizes": (4, 4)}, "twice"),
        ({"limit": 0}, "limit must be"),
        ({"fewshot": -1}, "fewshot must be"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(DataError, match=message):
        EvalConfig(**settings)
