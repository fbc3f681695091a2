"""Settings of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sere.errors import DataError

Scoring = Literal["decode", "prompt"]


@dataclass(frozen=True)
class EvalConfig:
    """What to run; the defaults are those of ``sere eval``.

    Attributes:
        tasks: Tasks, groups and tags of the harness, YAML files of tasks, ``bundled``,
            ``paper``, or one of the paper's, ``paper:GSM8K``.
        batch_sizes: Live sequences; everything is run at each of them.
        limit: Examples of each task, the first ones; None for all.
        fewshot: Examples shown in a prompt, in place of the task's own number (where that is not 0).
        chat: Put prompts into the tokenizer's chat template; None does it for tasks of ``paper``, where
            there is a template.
        generation: Settings of generation in place of the tasks' own: ``temperature``, ``max_gen_toks``.
        scoring: How an answer that is given is scored. ``decode`` feeds the prompt's last token and the
            answer's as decoding steps of the live batch; ``prompt`` reads all in one forward, as the
            harness does, where nothing but a policy with ``phase=all`` does anything.
        control: Run the control ``none`` too.
        run_code: Allow tasks that run what the model wrote, such as HumanEval.
        seed: Of few-shot examples, sampling and intervals.

    Raises:
        DataError: If a value is out of range.

    """

    tasks: tuple[str, ...] = ("bundled",)
    batch_sizes: tuple[int, ...] = (16,)
    limit: int | None = None
    fewshot: int | None = None
    chat: bool | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    scoring: Scoring = "decode"
    control: bool = True
    run_code: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.tasks:
            raise DataError("there are no tasks. Name at least one: --tasks bundled.")
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise DataError(f"batch sizes must be 1 or more, got {self.batch_sizes}. Give for example 16.")
        if len(set(self.batch_sizes)) < len(self.batch_sizes):
            raise DataError(f"batch sizes {self.batch_sizes} name one twice. Give each once.")
        if self.limit is not None and self.limit < 1:
            raise DataError(f"limit must be 1 or more, got {self.limit}. Leave it out for all examples.")
        if self.fewshot is not None and self.fewshot < 0:
            raise DataError(f"fewshot must be 0 or more, got {self.fewshot}.")
