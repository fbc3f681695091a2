"""Generated tasks with one right answer each: what the bundled model was trained to solve.

Every example is a short prompt and a short answer. Digits are single tokens and letters are
separated by spaces, so a prompt is never split in a way that hides the task from a small model.
Sums, differences and products are written **units first** (``add:037+451=`` gives ``884``
reversed, ``488``), which lets a decoder carry from left to right.

Pure Python: the training script, the evaluation and the tests share it.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sere.errors import DataError

LETTERS = string.ascii_lowercase


@dataclass(frozen=True)
class Example:
    """One prompt with its only right answer.

    Attributes:
        task: Name of the generator, a key of :data:`TASKS`.
        prompt: Text that the model continues, ending in ``=``.
        answer: Exact text that it should write before the end-of-text token.

    """

    task: str
    prompt: str
    answer: str


def _spaced(items: Sequence[str]) -> str:
    return "".join(f" {item}" for item in items)


def _letters(rng: random.Random, low: int, high: int) -> list[str]:
    return [rng.choice(LETTERS) for _ in range(rng.randint(low, high))]


def _units_first(value: int, width: int) -> str:
    return f"{value:0{width}d}"[::-1]


def _add(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(0, 999), rng.randint(0, 999)
    return f"add:{a:03d}+{b:03d}=", _units_first(a + b, 4)


def _subtract(rng: random.Random) -> tuple[str, str]:
    a, b = sorted((rng.randint(0, 999), rng.randint(0, 999)), reverse=True)
    return f"sub:{a:03d}-{b:03d}=", _units_first(a - b, 3)


def _multiply(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(0, 99), rng.randint(0, 9)
    return f"mul:{a:02d}*{b}=", _units_first(a * b, 3)


def _compare(rng: random.Random) -> tuple[str, str]:
    a = rng.randint(0, 9999)
    # Half of the pairs share leading digits, so that the first digit does not settle them.
    b = rng.randint(0, 9999) if rng.random() < 0.5 else a - a % 100 + rng.randint(0, 99)
    return f"max:{a:04d},{b:04d}=", f"{max(a, b):04d}"


def _sort(rng: random.Random) -> tuple[str, str]:
    items = _letters(rng, 4, 7)
    return f"sort:{_spaced(items)} =", _spaced(sorted(items))


def _reverse(rng: random.Random) -> tuple[str, str]:
    items = _letters(rng, 4, 8)
    return f"rev:{_spaced(items)} =", _spaced(items[::-1])


def _copy(rng: random.Random) -> tuple[str, str]:
    items = _letters(rng, 5, 10)
    return f"copy:{_spaced(items)} =", _spaced(items)


def _lookup(rng: random.Random) -> tuple[str, str]:
    keys = rng.sample(LETTERS, rng.randint(3, 5))
    values = [f"{rng.randint(0, 999):03d}" for _ in keys]
    asked = rng.randrange(len(keys))
    table = "".join(f" {key}{value}" for key, value in zip(keys, values, strict=True))
    return f"get:{table} ? {keys[asked]} =", values[asked]


def _shift(rng: random.Random) -> tuple[str, str]:
    items = _letters(rng, 4, 8)
    moved = [LETTERS[(LETTERS.index(item) + 1) % len(LETTERS)] for item in items]
    return f"next:{_spaced(items)} =", _spaced(moved)


def _interleave(rng: random.Random) -> tuple[str, str]:
    left = _letters(rng, 3, 5)
    right = [rng.choice(LETTERS) for _ in left]
    mixed = [item for pair in zip(left, right, strict=True) for item in pair]
    return f"zip:{_spaced(left)} |{_spaced(right)} =", _spaced(mixed)


TASKS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "compare": _compare,
    "sort": _sort,
    "reverse": _reverse,
    "copy": _copy,
    "lookup": _lookup,
    "shift": _shift,
    "interleave": _interleave,
}
"""Task name to generator; a generator draws one (prompt, answer) from a seeded source."""


def generate(task: str, rng: random.Random) -> Example:
    """Draw one example of ``task``.

    Raises:
        KeyError: If ``task`` is not a key of :data:`TASKS`.

    """
    prompt, answer = TASKS[task](rng)
    return Example(task, prompt, answer)


MOST_REPEATS = 1000
"""Prompts drawn again in a row after which a task counts as used up."""


def examples(count: int, seed: int, tasks: Sequence[str] = tuple(TASKS)) -> list[Example]:
    """Draw ``count`` distinct examples of each task, interleaved task by task.

    The same arguments give the same list on every platform.

    Raises:
        DataError: If a task has not so many prompts.

    """
    columns: list[list[Example]] = []
    for task in tasks:
        rng = random.Random(f"{seed}/{task}")
        seen: dict[str, Example] = {}
        repeated = 0
        while len(seen) < count:
            before = len(seen)
            example = generate(task, rng)
            seen.setdefault(example.prompt, example)
            repeated = repeated + 1 if len(seen) == before else 0
            if repeated == MOST_REPEATS:
                raise DataError(f"task {task!r} has only about {len(seen)} prompts. Ask for fewer.")
        columns.append(list(seen.values()))
    return [example for row in zip(*columns, strict=True) for example in row]


HELDOUT_SEED = 20_261_130
HELDOUT_COUNT = 100


def heldout() -> list[Example]:
    """Return the examples that training never saw: :data:`HELDOUT_COUNT` of each task."""
    return examples(HELDOUT_COUNT, HELDOUT_SEED)
