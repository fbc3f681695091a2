"""From what a user calls tasks to the harness's task objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sere.errors import DataError, did_you_mean
from sere.evaluation.harness.bundled import FOLDER, GROUP
from sere.evaluation.harness.config import EvalConfig
from sere.evaluation.harness.installed import quiet

BUNDLED = "bundled"


@dataclass(frozen=True)
class Chosen:
    """What is to be run.

    Attributes:
        tasks: Task's name to the harness's object, in order.
        groups: The harness's groups, by name.
        parts: What the user named, to the names of its tasks.

    """

    tasks: Mapping[str, Any]
    groups: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def choose(config: EvalConfig, say: Callable[[str], None] = lambda _text: None) -> Chosen:
    """Load what ``config`` names, its data included.

    Raises:
        DataError: If a name is unknown or given twice, or a task's data cannot be had.

    """
    names = [GROUP if name == BUNDLED else name for name in config.tasks]
    if len(set(names)) < len(names):
        raise DataError(f"--tasks {','.join(config.tasks)} names one twice. Give each once.")
    with quiet():
        say("reading the harness's list of tasks")
        manager = _manager(names)
        for name in names:
            _check_name(name, manager)
        tasks: dict[str, Any] = {}
        groups: dict[str, Any] = {}
        parts: dict[str, tuple[str, ...]] = {}
        for given, name in zip(config.tasks, names, strict=True):
            say(f"loading {given}")
            loaded = _load(manager, name)
            twice = set(loaded["tasks"]) & set(tasks)
            if twice:
                raise DataError(f"{given} holds {min(twice)}, which is named already. Give each task once.")
            tasks |= loaded["tasks"]
            groups |= loaded.get("groups", {})
            parts[given] = tuple(loaded["tasks"])
        for name, task in tasks.items():
            _set(name, task, config)
    return Chosen(tasks, groups, parts)


def _manager(names: Sequence[str]) -> Any:
    from lm_eval.tasks import TaskManager

    # Reading the harness's own 14,000 files takes longer than the bundled tasks do.
    own = all(name.startswith("sere_") for name in names)
    return TaskManager(include_path=[str(FOLDER)], include_defaults=not own)


def _check_name(name: str, manager: Any) -> None:
    if name in manager.all_tasks or (name.endswith((".yaml", ".yml")) and Path(name).is_file()):
        return
    known = [BUNDLED, *manager.all_tasks]
    hint = did_you_mean(name, known)
    if "Choose one of" in hint:
        hint = " `lm-eval ls tasks` lists all."
    raise DataError(f"the harness has no task {name!r}.{hint}")


def _load(manager: Any, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = manager.load([name])
    except Exception as error:  # data sets of all kinds fail in ways of their own
        text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(
            f"task {name} cannot be loaded: {text}. Check the network, or fill the Hub's cache where there "
            "is one and copy it here."
        ) from error
    return found


def _set(name: str, task: Any, config: EvalConfig) -> None:
    """Put the user's settings and the seed into a task."""
    if getattr(task, "UNSAFE_CODE", False) and not config.run_code:
        raise DataError(
            f"task {name} runs code that the model wrote. Add --run-code if this machine may run it, best "
            "in a container."
        )
    if task.OUTPUT_TYPE == "generate_until" and config.generation:
        task.set_config(key="generation_kwargs", value=dict(config.generation), update=True)
    own = task.get_config("num_fewshot")
    if config.fewshot is not None and own != 0:
        task.set_config(key="num_fewshot", value=config.fewshot)
    elif own is None:
        task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=config.seed)
