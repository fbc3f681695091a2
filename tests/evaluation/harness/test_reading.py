"""Results that the harness itself wrote, put side by side."""

from __future__ import annotations

import json
import shutil

import pytest
from lm_eval.evaluator import evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.models.huggingface import HFLM

import sere
from sere.engines.transformers import describe
from sere.errors import RecordError
from sere.evaluation.harness import EvalConfig
from sere.evaluation.harness.paired import compare_pairs
from sere.evaluation.harness.reading import read_results
from sere.evaluation.harness.tasks import choose

POLICY = "sere:top_s=1,floor=1,phase=all"


@pytest.fixture(scope="module")
def written(model, tokenizer, artifact, task_files, tmp_path_factory):
    """Run the harness alone, as it is, and let it write its files; with the scores by policy and task."""
    scores = {}
    folder = tmp_path_factory.mktemp("harness")

    def run(name):
        chosen = choose(EvalConfig(tasks=tuple(task_files.values())))
        lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4, backend="causal")
        found = evaluate(lm=lm, task_dict={"tasks": dict(chosen.tasks), "groups": {}}, bootstrap_iters=0)
        found["config"] = {"model": "hf", "model_args": "pretrained=tiny", "limit": None, "random_seed": 0}
        samples = found.pop("samples")
        scores[name] = [sample["acc"] for sample in samples["choice"]]
        tracker = EvaluationTracker(output_path=str(folder / name.partition(":")[0]))
        tracker.general_config_tracker.model_name_sanitized = "tiny"
        tracker.save_results_aggregated(results=found, samples=samples)
        for task, own in samples.items():
            tracker.save_results_samples(task_name=task, samples=own)

    run("unmodified")
    with sere.rerouted(model, artifact, POLICY):
        run(POLICY)
    return {"unmodified": folder / "unmodified", POLICY: folder / "sere"}, scores


@pytest.fixture
def folders(written, tmp_path):
    """A copy that may be damaged."""
    return {name: shutil.copytree(path, tmp_path / path.name) for name, path in written[0].items()}


def read(model, artifact, folders):
    return read_results(folders, describe(model), artifact, batch_size=4)


def test_pairs_are_those_of_the_harnesss_examples(model, artifact, folders, written):
    record = read(model, artifact, folders)
    assert record.policies == ["unmodified", POLICY]
    assert (record.engine, record.measured, record.batch_sizes) == ("hf", 0, [4])
    result = next(r for r in record.results if (r.task, r.policy) == ("choice", POLICY))
    plain, other = written[1]["unmodified"], written[1][POLICY]
    assert result.paired == compare_pairs([(plain, other)], seed=0)
    assert result.value == pytest.approx(sum(other) / 12)
    assert 0 <= result.same <= 1
    assert [file.policy for file in record.read] == ["unmodified", POLICY]


def test_results_without_examples_or_cut_short_are_named(model, artifact, folders):
    samples = next(folders[POLICY].rglob("samples_choice_*"))
    text = samples.read_text()
    samples.write_text(text[: len(text) // 2])
    with pytest.raises(RecordError, match=f"{samples.name} is cut short"):
        read(model, artifact, folders)
    samples.unlink()
    with pytest.raises(RecordError, match="--log_samples"):
        read(model, artifact, folders)
    results = next(folders["unmodified"].rglob("results_*"))
    results.write_text(results.read_text()[:300])
    with pytest.raises(RecordError, match="is cut short, or no results"):
        read(model, artifact, folders)


def test_results_of_other_settings_or_tasks_are_refused(model, artifact, folders):
    results = next(folders[POLICY].rglob("results_*"))
    whole = json.loads(results.read_text())
    results.write_text(json.dumps({**whole, "config": {**whole["config"], "limit": 5}}))
    with pytest.raises(RecordError, match=r"limit 5, the unmodified model with None"):
        read(model, artifact, folders)
    fewer = {name: value for name, value in whole["results"].items() if name != "writing"}
    results.write_text(json.dumps({**whole, "results": fewer}))
    with pytest.raises(RecordError, match="writing is in one of the two results only"):
        read(model, artifact, folders)


def test_other_prompts_are_refused(model, artifact, folders):
    samples = next(folders[POLICY].rglob("samples_choice_*"))
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    lines[0]["prompt_hash"] = "other"
    samples.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(RecordError, match="other prompts"):
        read(model, artifact, folders)


def test_an_empty_folder_and_a_missing_reference_are_named(model, artifact, folders, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match="no results of the harness"):
        read(model, artifact, {**folders, "unmodified": tmp_path / "empty"})
    with pytest.raises(RecordError, match="--from unmodified=FOLDER"):
        read(model, artifact, {POLICY: folders[POLICY]})
