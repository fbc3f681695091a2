"""Run one task of the harness under one policy."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import numpy as np
import torch

from sere.engines.transformers import find_layers
from sere.errors import DataError, SereError
from sere.evaluation.harness.cell import Cell, read_samples
from sere.evaluation.harness.config import EvalConfig
from sere.evaluation.harness.installed import quiet
from sere.evaluation.stepwise import ExpertCount, Rerouting
from sere.evaluation.summarise import experts_record

_ITERATIONS = 1000
_KEPT = ("configs", "versions", "n-shot", "higher_is_better", "n-samples")


def measure(
    lm: Any,
    task: str,
    made: Any,
    policy: str,
    rerouting: Rerouting,
    config: EvalConfig,
    run: str,
    limit: int | None,
    chat: bool,
) -> tuple[Cell, str]:
    """Run ``task`` and return what was measured, and its examples as the harness's lines of JSON.

    Args:
        lm: The harness's model, a :class:`~sere.evaluation.harness.lm.LiveLM`.
        task: Its name.
        made: The harness's object.
        policy: Name of the policy.
        rerouting: What to re-route with.
        config: Settings.
        run: Start of this run.
        limit: Most examples, None for all.
        chat: Whether prompts go into the chat template.

    Raises:
        DataError: If the task fails.

    """
    lm.reset()
    started, experts = time.monotonic(), ExpertCount()
    with rerouting.on(lm.model) as handle:
        found = _evaluate(lm, task, made, config, limit, chat)
        if handle is not None:
            experts.add_all(handle.counters().decode)
    samples = found["samples"][task]
    prompts, scores, answers = read_samples(samples)
    harness = {name: found[name].get(task) for name in _KEPT} | {"results": found["results"][task]}
    width = max(layer.num_experts for layer in find_layers(lm.model))
    cell = Cell(
        task=task,
        policy=policy,
        batch_size=int(lm.batch_size),
        run=run,
        output_type=made.OUTPUT_TYPE,
        prompts=prompts,
        scores=scores,
        answers=answers,
        harness=json.loads(_dumped(harness)),
        sequences=lm.requests,
        steps=lm.occupancy.steps,
        mean_live=lm.occupancy.mean,
        cut=lm.cut,
        experts=experts_record(experts, width) if experts.steps else None,
        seconds=time.monotonic() - started,
    )
    if not cell.metrics:
        raise DataError(f"task {task} gives no figure. Leave it out.")
    return cell, "".join(f"{_dumped(_sample(each))}\n" for each in samples)


def _evaluate(
    lm: Any, task: str, made: Any, config: EvalConfig, limit: int | None, chat: bool
) -> dict[str, Any]:
    from lm_eval.evaluator import evaluate

    # What the harness seeds at the start of a run; here every task and policy starts alike.
    random.seed(config.seed)
    np.random.seed(config.seed)  # noqa: NPY002 - the harness's tasks draw from it
    torch.manual_seed(config.seed)
    made.set_fewshot_seed(seed=config.seed)
    try:
        with quiet():
            found: dict[str, Any] = evaluate(
                lm=lm,
                task_dict={"tasks": {task: made}, "groups": {}, "group_map": {}},
                limit=limit,
                bootstrap_iters=_ITERATIONS,
                log_samples=True,
                apply_chat_template=chat,
                fewshot_as_multiturn=chat,
                confirm_run_unsafe_code=config.run_code,
            )
    except (SereError, KeyboardInterrupt, MemoryError):
        raise
    except (ValueError, KeyError, TypeError, ImportError, AssertionError, LookupError) as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(f"task {task} failed in the harness: {text}. Leave it out, or mend it.") from error
    return found


def _sample(sample: dict[str, Any]) -> dict[str, Any]:
    """Name a request's arguments, as the harness does where it writes examples to a file."""
    named = {
        f"gen_args_{i}": {f"arg_{j}": value for j, value in enumerate(arguments)}
        for i, arguments in enumerate(sample["arguments"])
    }
    return {**sample, "arguments": named, "target": str(sample["target"])}


def _dumped(value: Any) -> str:
    from lm_eval.utils import handle_non_serializable

    return json.dumps(value, default=handle_non_serializable, ensure_ascii=False)
