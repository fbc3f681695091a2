"""Exact match and task files."""

import json

import pytest

from sere.demo.tasks import TASKS, Example
from sere.errors import DataError
from sere.evaluation.exact_match import bundled_examples, load_examples, solve
from sere.evaluation.greedy import decode_greedily
from sere.evaluation.tokens import encode


def test_what_the_model_writes_is_right_and_anything_else_is_wrong(model, tokenizer):
    prompts = ["12+3=", "copy: a b =", "x"]
    written = decode_greedily(model, tokenizer, [encode(tokenizer, p) for p in prompts], [9] * 3, 3).tokens
    texts = [text.strip().split("\n")[0].strip() for text in tokenizer.batch_decode(written)]
    examples = [Example("own", *pair) for pair in zip(prompts, texts, strict=True)]
    examples.append(Example("other", "12+3=", texts[0][:-1] + "~"))
    # Answers of random bytes may be longer than the budget was: give each its own.
    solved = solve(model, tokenizer, examples, 4)
    own = [right for task, right in zip(solved.tasks, solved.right, strict=True) if task == "own"]
    assert solved.tasks == ("own", "own", "own", "other")
    assert solved.by_task() == {"own": sum(own) / 3, "other": 0.0}


@pytest.mark.parametrize(
    ("written", "right"),
    [(" a b", True), ("a b", True), ("a b\nmore", True), ("a b c", False), ("", False), ("a  b", False)],
)
def test_an_answer_ends_at_the_line_break_and_blanks_around_it_do_not_count(
    model, tokenizer, monkeypatch, written, right
):
    from sere.evaluation import exact_match
    from sere.evaluation.greedy import Completions

    def fake(*_args):
        return Completions([tokenizer(written).input_ids], 1, 1.0)

    monkeypatch.setattr(exact_match, "decode_greedily", fake)
    assert solve(model, tokenizer, [Example("t", "p", " a b")], 1).right == (right,)


def test_bundled_examples_come_task_by_task_and_are_the_same_every_time():
    examples = bundled_examples(3)
    assert [example.task for example in examples] == list(TASKS) * 3
    assert examples == bundled_examples(3)
    assert bundled_examples(2, ["sort"])[0].prompt.startswith("sort:")


def test_an_unknown_task_is_named_with_the_likely_one():
    with pytest.raises(DataError, match=r"no task 'sorting'. Did you mean 'sort'"):
        bundled_examples(1, ["sorting"])


def test_a_task_file_gives_examples_in_order(tmp_path):
    path = tmp_path / "sums.jsonl"
    lines = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "2+2=", "answer": "4", "task": "even"}]
    path.write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert load_examples(path) == [Example("sums", "1+1=", "2"), Example("even", "2+2=", "4")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"prompt": "a", "answer": "b"}\n{oops', "line 2: not JSON"),
        ('{"prompt": "a"}', "line 1: needs a non-empty text under 'answer'"),
        ('{"prompt": 3, "answer": "b"}', "line 1: needs a non-empty text under 'prompt'"),
        ("[1]", "line 1: needs a non-empty text under 'prompt'"),
        ("\n \n", "is empty"),
        ('{"prompt": "a", "answer": "b\\nc"}', "line 1: the answer has several lines"),
        ('{"prompt": "a", "answer": "b", "task": null}', "line 1: 'task' must be a non-empty text"),
        ('{"prompt": "a", "answer": "b", "task": 3}', "line 1: 'task' must be a non-empty text"),
    ],
)
def test_a_bad_task_file_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "tasks.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_examples(path)


def test_a_byte_order_mark_and_line_separators_inside_a_text_are_no_hindrance(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('\ufeff{"prompt": "a\u2028b\x85", "answer": "c"}\r\n', encoding="utf-8")
    assert load_examples(path) == [Example("tasks", "a\u2028b\x85", "c")]


def test_a_missing_task_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        load_examples(tmp_path / "nowhere.jsonl")


def test_no_examples_are_refused(model, tokenizer):
    with pytest.raises(DataError, match="no task examples"):
        solve(model, tokenizer, [], 4)
