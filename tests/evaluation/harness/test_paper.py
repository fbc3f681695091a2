"""The paper's eight tasks, from the harness's files and documents in their data sets' form."""

from __future__ import annotations

import datasets
import evaluate as hf_evaluate
import pytest

from sere.errors import DataError
from sere.evaluation.harness import EvalConfig
from sere.evaluation.harness.paper import ARITHMETIC, GENERATION
from sere.evaluation.harness.tasks import choose

CMMLU = {"Question": "一加一等于几?", "A": "一", "B": "二", "C": "三", "D": "四", "Answer": "B"}
BOOLQ = {"passage": "Water is wet.", "question": "is water wet", "label": 1, "idx": 0}
BBH = {"input": "not ( True ) is", "target": "False"}
MATH = {"problem": "What is $1+1$?", "level": "Level 1", "type": "Algebra", "solution": r"It is $\boxed{2}$."}
GSM8K = {"question": "Two and two?", "answer": "2 + 2 = 4\n#### 4"}
ARITHMETIC_DOC = {"context": "Question: What is 12 plus 30?\nAnswer:", "completion": " 42"}
CODE = {
    "task_id": "HumanEval/0",
    "prompt": "def one():\n",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
    "entry_point": "one",
}
MBPP = {
    "text": "Return one.",
    "code": "def one(): return 1",
    "test_list": ["assert one() == 1"] * 3,
    "task_id": 11,
}
BY_NAME = {
    "haonan-li/cmmlu": CMMLU,
    "aps/super_glue": BOOLQ,
    "SaylorTwift/bbh": BBH,
    "EleutherAI/hendrycks_math": MATH,
    "openai/gsm8k": GSM8K,
    "gsm8k": GSM8K,
    "json": ARITHMETIC_DOC,
    "openai/openai_humaneval": CODE,
    "google-research-datasets/mbpp": MBPP,
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def load_dataset(path, name=None, **_):
        rows = [BY_NAME[path]] * (60 if path == "json" else 2)
        return datasets.DatasetDict(
            {s: datasets.Dataset.from_list(rows) for s in ("train", "validation", "dev", "test")}
        )

    class Metric:
        def compute(self, references, predictions, k):
            return {"pass@1": 1.0}, {}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(hf_evaluate, "load", lambda _name: Metric())


def only(name):
    """Load one of the eight and return it with its first task."""
    chosen = choose(EvalConfig(tasks=(f"paper:{name}",), run_code=True))
    [parts] = chosen.parts.values()
    return chosen, chosen.tasks[parts[0]]


def answered(task, text):
    """Score of ``text`` as the answer to the first example."""
    task.build_all_requests(limit=1)
    [instance] = task.instances
    instance.resps = [text]
    task.apply_filters()
    names = list(instance.filtered_resps)
    filtered = instance.filtered_resps["flexible-extract" if "flexible-extract" in names else names[0]]
    return task.process_results(instance.doc, [filtered])


def test_preset_names_all_eight_with_the_papers_settings():
    chosen = choose(EvalConfig(tasks=("paper",), run_code=True))
    assert [name.removeprefix("paper:") for name in chosen.parts] == [
        "CMMLU", "BoolQ", "BBH", "MATH", "GSM8K", "arithmetic", "HumanEval", "MBPP",
    ]  # fmt: skip
    assert [len(tasks) for tasks in chosen.parts.values()] == [67, 1, 27, 7, 1, 10, 1, 1]
    assert chosen.of_paper == frozenset(chosen.tasks)
    for task in chosen.tasks.values():
        assert task.OUTPUT_TYPE == "generate_until"
        settings = task.get_config("generation_kwargs")
        assert {name: settings[name] for name in GENERATION} == dict(GENERATION)


def test_arithmetic_is_as_many_examples_as_math401():
    chosen, task = only("arithmetic")
    assert sum(chosen.limit(name, None) for name in chosen.tasks) == 10 * ARITHMETIC == 400
    assert chosen.limit("arithmetic_2da", 3) == 3
    assert answered(task, " 12 + 30 is 42.")["exact_match"] == 1
    assert answered(task, " 42, or rather 43")["exact_match"] == 0


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("CMMLU", "一加一是二,所以选B。\n答案是B。", "答案是B。不对,答案:C"),
        ("BoolQ", "Surely. The answer is Yes.", "The answer is yes. No: the answer is no."),
        ("BBH", "not ( True ) is False. So the answer is False.", "So the answer is True."),
        ("MATH", "Final Answer: The final answer is $2$. I hope it is correct.", "The final answer is $3$."),
        ("GSM8K", "2 + 2 = 4. The answer is 4.", "The answer is 5."),
    ],
)
def test_the_last_answer_given_counts(name, right, wrong):
    _, task = only(name)
    assert answered(task, right)["exact_match"] == 1
    assert answered(task, wrong)["exact_match"] == 0


def test_cmmlu_and_boolq_ask_for_reasons_first_without_examples():
    for name, question in (("CMMLU", CMMLU["Question"]), ("BoolQ", BOOLQ["question"])):
        _, task = only(name)
        task.build_all_requests(limit=1)
        prompt = task.instances[0].args[0]
        assert prompt.count(question) == 1
        assert "一步一步" in prompt or "step by step" in prompt


def test_the_users_settings_go_over_the_presets():
    chosen = choose(EvalConfig(tasks=("paper:GSM8K",), generation={"temperature": 0.2}, fewshot=1))
    task = chosen.tasks["gsm8k_cot"]
    assert task.get_config("generation_kwargs")["temperature"] == 0.2
    assert task.get_config("num_fewshot") == 1


def test_code_is_not_run_unasked():
    with pytest.raises(DataError, match="--run-code"):
        choose(EvalConfig(tasks=("paper:HumanEval",)))


def test_a_part_that_the_paper_has_not_is_named():
    with pytest.raises(DataError, match="Did you mean 'paper:GSM8K'"):
        choose(EvalConfig(tasks=("paper:GSM8k",)))


def test_a_data_set_out_of_reach_is_named(monkeypatch):
    def refuse(*_given, **_settings):
        raise ConnectionError("Couldn't reach 'openai/gsm8k' on the Hub (LocalEntryNotFoundError)\nmore")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"task gsm8k cannot be loaded: Couldn't reach.*Check the network"):
        choose(EvalConfig(tasks=("gsm8k",)))
