"""From what a user calls tasks to the harness's task objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sere.errors import DataError, did_you_mean
from sere.evaluation.harness import paper
from sere.evaluation.harness.bundled import FOLDER, GROUP
from sere.evaluation.harness.config import EvalConfig
from sere.evaluation.harness.installed import quiet

BUNDLED = "bundled"
_OF_PAPER = f"{paper.PAPER}:"


@dataclass(frozen=True)
class Chosen:
    """What is to be run.

    Attributes:
        tasks: Task's name to the harness's object, in order.
        groups: The harness's groups, by name.
        parts: What the user named, to the names of its tasks; ``paper`` counts as eight names.
        limits: Most examples of a task, where it has a limit of its own.
        of_paper: Tasks of the preset ``paper``.

    """

    tasks: Mapping[str, Any]
    groups: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    of_paper: frozenset[str] = frozenset()

    def limit(self, task: str, given: int | None) -> int | None:
        """Return the most examples of ``task``, where the user gave ``given``; None for all."""
        own = self.limits.get(task)
        return given if own is None else own if given is None else min(own, given)


def choose(config: EvalConfig, say: Callable[[str], None] = lambda _text: None) -> Chosen:
    """Load what ``config`` names, its data included.

    Raises:
        DataError: If a name is unknown or given twice, or a task's data cannot be had.

    """
    names = list(_expanded(config.tasks))
    if len(set(names)) < len(names):
        raise DataError(f"--tasks {','.join(config.tasks)} names one twice. Give each once.")
    if config.run_code:
        os.environ["HF_ALLOW_CODE_EVAL"] = "1"  # the harness's metrics ask for it
    with quiet():
        say("reading the harness's list of tasks")
        # Reading the harness's own 14,000 files takes longer than the bundled tasks do.
        manager = _manager(not all(name.startswith("sere_") or name == BUNDLED for name in names))
        for name in names:
            _check_name(name, manager)
        tasks: dict[str, Any] = {}
        groups: dict[str, Any] = {}
        parts: dict[str, tuple[str, ...]] = {}
        for name in names:
            say(f"loading {name}")
            loaded = _load(manager, name)
            twice = set(loaded["tasks"]) & set(tasks)
            if twice:
                raise DataError(f"{name} holds {min(twice)}, which is named already. Give each task once.")
            tasks |= loaded["tasks"]
            groups |= loaded.get("groups", {})
            parts[name] = tuple(loaded["tasks"])
        of_paper = frozenset(
            task for name, own in parts.items() if name.startswith(_OF_PAPER) for task in own
        )
        for name, task in tasks.items():
            _set(name, task, config, paper.GENERATION if name in of_paper else {})
    limits = {task: limit for task, limit in paper.LIMITS.items() if task in of_paper}
    return Chosen(tasks, groups, parts, limits, of_paper)


def _expanded(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name == paper.PAPER:
            yield from (f"{_OF_PAPER}{part}" for part in paper.groups(()))
        else:
            yield BUNDLED if name == GROUP else name


@cache
def _manager(defaults: bool) -> Any:
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=[str(FOLDER)], include_defaults=defaults)


def _check_name(name: str, manager: Any) -> None:
    file = name.endswith((".yaml", ".yml")) and Path(name).is_file()
    if name in (BUNDLED, *manager.all_tasks) or file:
        return
    if name.startswith(_OF_PAPER):
        known = [f"{_OF_PAPER}{part}" for part in paper.groups(())]
        if name in known:
            return
        raise DataError(f"the paper has no task {name!r}.{did_you_mean(name, known)}")
    hint = did_you_mean(name, [BUNDLED, paper.PAPER, *manager.all_tasks])
    if "Choose one of" in hint:
        hint = " `lm-eval ls tasks` lists all."
    raise DataError(f"the harness has no task {name!r}.{hint}")


def _load(manager: Any, name: str) -> dict[str, Any]:
    spec: Any = GROUP if name == BUNDLED else name
    if name.startswith(_OF_PAPER):
        spec = paper.groups(manager.all_subtasks)[name.removeprefix(_OF_PAPER)]
    try:
        found: dict[str, Any] = manager.load([spec])
    except Exception as error:  # data sets of all kinds fail in ways of their own
        text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        if "HF_ALLOW_CODE_EVAL" in str(error):
            raise DataError(_unsafe(name)) from error
        raise DataError(
            f"task {name} cannot be loaded: {text}. Check the network, or fill the Hub's cache where there "
            "is one and copy it here."
        ) from error
    return found


def _unsafe(name: str) -> str:
    return (
        f"task {name} runs code that the model wrote. Add --run-code if this machine may run it, best in a "
        "container, or leave the task out."
    )


def _set(name: str, task: Any, config: EvalConfig, generation: Mapping[str, Any]) -> None:
    """Put the user's settings, over those of a preset, and the seed into a task."""
    if (getattr(task, "UNSAFE_CODE", False) or task.get_config("unsafe_code")) and not config.run_code:
        raise DataError(_unsafe(name))
    settings = {**generation, **config.generation}
    if task.OUTPUT_TYPE == "generate_until" and settings:
        task.set_config(key="generation_kwargs", value=settings, update=True)
    own = task.get_config("num_fewshot")
    if config.fewshot is not None and own != 0:
        task.set_config(key="num_fewshot", value=config.fewshot)
    elif own is None:
        task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=config.seed)
