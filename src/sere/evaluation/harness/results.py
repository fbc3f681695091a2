"""The harness's own results file, put together from tasks that were run one by one."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sere.evaluation.files import write_text
from sere.evaluation.harness.cell import Cell
from sere.evaluation.harness.config import EvalConfig
from sere.evaluation.harness.folder import Folder
from sere.evaluation.harness.tasks import Chosen
from sere.provenance import Provenance

_BY_TASK = ("configs", "versions", "n-shot", "higher_is_better", "n-samples")


def write_results(
    folder: Folder, cells: Sequence[Cell], chosen: Chosen, config: EvalConfig, run: Provenance, model: str
) -> None:
    """Write ``results_sere.json`` of one policy and batch size, groups and all.

    Args:
        folder: Where to.
        cells: All tasks of one policy and batch size.
        chosen: The harness's tasks and groups.
        config: Settings.
        run: The run that finished them.
        model: Name of the model.

    Raises:
        DataError: If it cannot be written.

    """
    results: dict[str, Any] = {cell.task: cell.harness["results"] for cell in cells}
    groups = _groups(chosen.groups, results)
    found: dict[str, Any] = {"results": {**results, **groups}}
    if groups:
        found["groups"] = groups
    found["group_subtasks"] = {name: group.child_names for name, group in chosen.groups.items()}
    for name in _BY_TASK:
        found[name] = {cell.task: cell.harness[name] for cell in cells}
    first = cells[0]
    found["config"] = {
        "model": "hf",
        "model_args": {"pretrained": model, "sere_policy": first.policy},
        "model_dtype": run.dtype,
        "batch_size": first.batch_size,
        "device": run.device,
        "limit": config.limit,
        "gen_kwargs": dict(config.generation) or None,
        "random_seed": config.seed,
        "numpy_seed": config.seed,
        "torch_seed": config.seed,
        "fewshot_seed": config.seed,
    }
    found |= {
        "model_name": model,
        "lm_eval_version": importlib.metadata.version("lm_eval"),
        "transformers_version": importlib.metadata.version("transformers"),
        "total_evaluation_time_seconds": str(sum(cell.seconds for cell in cells)),
    }
    place = folder.variant(first.policy, first.batch_size) / "results_sere.json"
    write_text(place, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _groups(groups: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """Aggregate groups by the harness's own rules, the inner ones first."""
    done: dict[str, Any] = {}
    waiting = dict(groups)
    while waiting:
        ready = [name for name, group in waiting.items() if not set(group.child_names) & set(waiting)]
        for name in ready:
            group = waiting.pop(name)
            if group.has_aggregation:
                done[name] = group.aggregate({**results, **done})
    return done
