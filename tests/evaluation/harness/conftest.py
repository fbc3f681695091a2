"""A task of multiple choice and one of writing, as files, and an evaluation of them on the tiny model."""

from __future__ import annotations

import textwrap

import pytest

from sere.evaluation.harness import EvalConfig, run_eval

FUNCTIONS = """
import datasets

def letters(count, **_):
    rows = [
        {"q": f"{i}+{i % 7}=", "options": [str(i + i % 7), str(i + 1), "none"], "right": i % 3}
        for i in range(count)
    ]
    return datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)})
"""
CHOICE = """
    task: choice
    custom_dataset: !function functions.letters
    dataset_kwargs: {count: 12}
    test_split: test
    output_type: multiple_choice
    doc_to_text: "{{q}}"
    doc_to_choice: "{{options}}"
    doc_to_target: right
    num_fewshot: 0
    metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
    metadata: {version: 1.0}
"""
WRITING = """
    task: writing
    custom_dataset: !function functions.letters
    dataset_kwargs: {count: 5}
    test_split: test
    output_type: generate_until
    doc_to_text: "{{q}}"
    doc_to_target: "{{options[0]}}"
    num_fewshot: 0
    generation_kwargs: {until: ["a"], max_gen_toks: 6, do_sample: false}
    metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
    metadata: {version: 1.0}
"""


@pytest.fixture(scope="session")
def task_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "functions.py").write_text(FUNCTIONS)
    for name, text in (("choice", CHOICE), ("writing", WRITING)):
        (folder / f"{name}.yaml").write_text(textwrap.dedent(text))
    return {name: str(folder / f"{name}.yaml") for name in ("choice", "writing")}


@pytest.fixture
def evaluate(model, tokenizer, artifact, task_files, tmp_path):
    """Run both tasks on the tiny model under SERE; settings by keyword."""

    def run(out="out", policies=("sere:top_s=1,floor=1",), progress=None, **settings):
        names = settings.pop("tasks", tuple(task_files.values()))
        config = EvalConfig(**{"tasks": names, "batch_sizes": (4,), **settings})
        return run_eval(model, tokenizer, artifact, policies, config, tmp_path / out, progress=progress)

    return run
