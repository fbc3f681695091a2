"""Exact match: prompts with one right answer, decoded greedily in live batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sere.demo.tasks import TASKS, Example, heldout
from sere.errors import DataError, did_you_mean
from sere.evaluation.greedy import decode_greedily
from sere.evaluation.tokens import encode

SPARE_TOKENS = 4
"""Tokens allowed beyond the right answer's own: enough for an end token and another splitting."""


@dataclass(frozen=True)
class Solved:
    """Outcome of a set of prompts.

    Attributes:
        tasks: Task of every prompt.
        right: Whether every prompt was answered rightly.
        mean_live: Mean live sequences of a decoding step.
        answers: What was written to every prompt.

    """

    tasks: tuple[str, ...]
    right: tuple[bool, ...]
    mean_live: float
    answers: tuple[str, ...] = ()

    def share(self, task: str | None = None) -> float:
        """Share of right answers in [0, 1], of one task or of all."""
        chosen = [right for name, right in zip(self.tasks, self.right, strict=True) if task in (None, name)]
        return sum(chosen) / len(chosen)

    def by_task(self) -> dict[str, float]:
        """Share of right answers by task."""
        return {task: self.share(task) for task in dict.fromkeys(self.tasks)}


def bundled_examples(per_task: int, tasks: Sequence[str] = tuple(TASKS)) -> list[Example]:
    """Take the first ``per_task`` held-out examples of every task of the bundled model.

    Raises:
        DataError: If a task is unknown.

    """
    for task in tasks:
        if task not in TASKS:
            raise DataError(f"there is no task {task!r}.{did_you_mean(task, TASKS)}")
    everything = heldout()
    chosen = {task: [e for e in everything if e.task == task][:per_task] for task in tasks}
    return [example for row in zip(*chosen.values(), strict=True) for example in row]


def load_examples(path: str | Path) -> list[Example]:
    """Read a task file: one JSON object a line with ``prompt``, ``answer`` and perhaps ``task``.

    Raises:
        DataError: If the file cannot be read, is empty, or has a bad line; the message has its number.

    """
    path = Path(path)
    try:
        # Not splitlines: it would also cut at characters that JSON allows inside a text, such as U+2028.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the task file {path} cannot be read: {error}. Check the path.") from error
    examples = [_example(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not examples:
        raise DataError(
            f'the task file {path} is empty. Write lines like {{"prompt": "1+1=", "answer": "2"}}.'
        )
    return examples


def _example(path: Path, number: int, line: str) -> Example:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {number}: not JSON ({error.msg}). Write one object a line.") from error
    fields = entry if isinstance(entry, dict) else {}
    for key in ("prompt", "answer"):
        if not isinstance(fields.get(key), str) or not fields[key].strip():
            raise DataError(f"{path}, line {number}: needs a non-empty text under {key!r}. Add it.")
    if len(fields["answer"].strip().split("\n")) > 1:
        raise DataError(
            f"{path}, line {number}: the answer has several lines, only the first one written is compared. "
            "Ask for an answer of one line."
        )
    task = fields.get("task", path.stem)
    if not isinstance(task, str) or not task.strip():
        raise DataError(f"{path}, line {number}: 'task' must be a non-empty text. Write it or leave it out.")
    return Example(task, fields["prompt"], fields["answer"])


def prepare(tokenizer: Any, examples: Sequence[Example]) -> tuple[list[list[int]], list[int]]:
    """Token ids of every prompt, and the most new tokens that its answer may take."""
    prompts = [encode(tokenizer, example.prompt) for example in examples]
    answers = [tokenizer(example.answer, add_special_tokens=False).input_ids for example in examples]
    return prompts, [len(answer) + SPARE_TOKENS for answer in answers]


def solve(model: Any, tokenizer: Any, examples: Sequence[Example], batch_size: int) -> Solved:
    """Decode all prompts with ``batch_size`` live sequences and compare with the answers.

    An answer is what is written up to the end token or the first line break, without surrounding
    blanks; it is right if it equals the expected text, stripped likewise.

    Raises:
        DataError: If there are no examples, or as :func:`~sere.evaluation.greedy.decode_greedily`.

    """
    if not examples:
        raise DataError("there are no task examples. Give at least one.")
    prompts, budgets = prepare(tokenizer, examples)
    done = decode_greedily(model, tokenizer, prompts, budgets, batch_size)
    texts = tokenizer.batch_decode(done.tokens, skip_special_tokens=True)
    answers = tuple(_first_line(text) for text in texts)
    right = [answer == example.answer.strip() for answer, example in zip(answers, examples, strict=True)]
    return Solved(tuple(example.task for example in examples), tuple(right), done.mean_live, answers)


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0].strip()
