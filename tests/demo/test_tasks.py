"""The generated tasks: right answers, held-out examples, and an end to what can be drawn."""

import pytest

from sere.demo.tasks import TASKS, examples, heldout
from sere.errors import DataError

RIGHT = {
    "add": lambda p: f"{sum(map(int, p.split(':')[1][:-1].split('+'))):04d}"[::-1],
    "subtract": lambda p: f"{int(p[4:7]) - int(p[8:11]):03d}"[::-1],
    "multiply": lambda p: f"{int(p[4:6]) * int(p[7]):03d}"[::-1],
    "compare": lambda p: max(p[4:8], p[9:13]),
    "sort": lambda p: " " + " ".join(sorted(p[5:-1].split())),
    "reverse": lambda p: " " + " ".join(p[4:-1].split()[::-1]),
    "copy": lambda p: " " + " ".join(p[5:-1].split()),
    "lookup": lambda p: next(e[1:] for e in p[4:].split("?")[0].split() if e[0] == p[-3]),
    "shift": lambda p: " " + " ".join(chr((ord(c) - 96) % 26 + 97) for c in p[5:-1].split()),
    "interleave": lambda p: "".join(
        f" {a} {b}" for a, b in zip(*(side.split() for side in p[4:-1].split("|")), strict=True)
    ),
}


def test_every_held_out_answer_is_right():
    assert RIGHT.keys() == TASKS.keys()
    for example in heldout():
        assert example.answer == RIGHT[example.task](example.prompt), example


def test_held_out_prompts_are_distinct_and_the_same_every_time():
    drawn = heldout()
    assert len({example.prompt for example in drawn}) == len(drawn) == 1000
    assert drawn == heldout()


def test_more_examples_than_there_are_end_in_an_error_and_not_in_an_endless_loop():
    with pytest.raises(DataError, match=r"'multiply' has only about \d+ prompts"):
        examples(1001, seed=0, tasks=["multiply"])
