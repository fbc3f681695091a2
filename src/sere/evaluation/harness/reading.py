"""Results that the harness wrote elsewhere, through vLLM or a server, put side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sere.artifact import Artifact, ModelRecord
from sere.errors import RecordError
from sere.evaluation.compare import UNMODIFIED, plan
from sere.evaluation.harness.assemble import averages, result_of
from sere.evaluation.harness.cell import Cell, read_samples
from sere.evaluation.harness.record import EvalRecord, ReadFile
from sere.provenance import Provenance

_BY_TASK = ("configs", "versions", "n-shot", "higher_is_better", "n-samples")
_SAME = ("limit", "gen_kwargs", "random_seed", "numpy_seed", "torch_seed", "fewshot_seed", "model")
_KEPT = ("model", "model_args", "batch_size", "device", *_SAME)


def read_results(
    folders: Mapping[str, str | Path],
    model: ModelRecord,
    artifact: Artifact | None = None,
    *,
    batch_size: int,
    metric: str | None = None,
    seed: int = 0,
) -> EvalRecord:
    """Read what ``lm-eval run --log_samples --output_path FOLDER`` wrote, and compare it pair by pair.

    Args:
        folders: Policy, ``unmodified`` among them, to folder; in each the newest results are taken.
        model: The model.
        artifact: The artifact that was served.
        batch_size: Live sequences that the engine allowed, for the record.
        metric: Similarity that was served.
        seed: Of the intervals.

    Raises:
        RecordError: If a file is missing, cut short, or of other settings than the unmodified model's.
        PolicyError: If a policy is malformed.

    """
    plan(artifact, list(folders), metric)
    if UNMODIFIED not in folders:
        raise RecordError(f"there are no results of the unmodified model. Add --from {UNMODIFIED}=FOLDER.")
    run = Provenance.now(
        device="unknown",
        fingerprint=model.fingerprint,
        artifact=None if artifact is None else artifact.hash,
        seeds={"intervals": seed},
    )
    files: dict[str, ReadFile] = {}
    found: dict[str, dict[str, Cell]] = {}
    for policy in [UNMODIFIED, *(name for name in folders if name != UNMODIFIED)]:
        path = _newest(Path(folders[policy]))
        results, digest = _object(path)
        files[policy] = _described(policy, path, digest, results)
        _check_same(files[UNMODIFIED], files[policy])
        found[policy] = {c.task: c for c in _cells(path, results, policy, batch_size, run.created)}
        _check_tasks(found[UNMODIFIED], found[policy], path)
    plain = found[UNMODIFIED]
    cells = [own[task] for task in plain for own in found.values()]
    names = {task: task for task in plain}
    return EvalRecord(
        provenance=run,
        runs=[run],
        model=model,
        artifact=run.artifact,
        metric=metric,
        engine=str(files[UNMODIFIED].config.get("model")),
        config={
            "tasks": list(plain),
            "batch_sizes": [batch_size],
            "seed": seed,
            **_settings(files[UNMODIFIED]),
        },
        results=[result_of(cell, cell.task, plain[cell.task], seed) for cell in cells],
        averages=averages(cells, names, seed),
        measured=0,
        seconds=sum(cell.seconds for cell in cells),
        read=list(files.values()),
    )


def _newest(folder: Path) -> Path:
    found = sorted(folder.rglob("results_*.json"), key=lambda path: path.name)
    if not found:
        raise RecordError(
            f"{folder} holds no results of the harness. Give the folder that "
            "`lm-eval run --output_path` wrote to."
        )
    return found[-1]


def _object(path: Path) -> tuple[dict[str, Any], str]:
    data = path.read_bytes()
    try:
        value = json.loads(data)
        whole = isinstance(value["results"], dict) and isinstance(value["config"], dict)
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise RecordError(f"{path} is cut short, or no results of the harness. Run the harness again.")
    return value, hashlib.sha256(data).hexdigest()


def _described(policy: str, path: Path, digest: str, results: Mapping[str, Any]) -> ReadFile:
    versions = {
        name: str(results[name]) for name in ("lm_eval_version", "transformers_version") if name in results
    }
    config = {name: results["config"].get(name) for name in _KEPT}
    return ReadFile(
        policy=policy,
        file=path.name,
        sha256=digest,
        config={**config, "chat_template_sha": results.get("chat_template_sha")},
        versions=versions,
    )


def _settings(file: ReadFile) -> dict[str, object]:
    return {name: file.config[name] for name in ("limit", "gen_kwargs", "batch_size")}


def _check_same(plain: ReadFile, other: ReadFile) -> None:
    for name in (*_SAME, "chat_template_sha"):
        if plain.config[name] != other.config[name]:
            raise RecordError(
                f"{other.policy} was run with {name} {other.config[name]}, the unmodified model with "
                f"{plain.config[name]}. Run the harness with the same settings for both."
            )


def _check_tasks(plain: Mapping[str, Cell], other: Mapping[str, Cell], path: Path) -> None:
    missing = sorted(set(plain) ^ set(other))
    if missing:
        raise RecordError(
            f"{path}: {missing[0]} is in one of the two results only. Run the same tasks for both."
        )


def _cells(path: Path, results: Mapping[str, Any], policy: str, size: int, run: str) -> Iterator[Cell]:
    stamp = path.stem.removeprefix("results_")
    for task, figures in results["results"].items():
        if task in results.get("groups", {}) or task not in results.get("configs", {}):
            continue
        prompts, scores, answers = read_samples(_samples(path.with_name(f"samples_{task}_{stamp}.jsonl")))
        yield Cell(
            task=task,
            policy=policy,
            batch_size=size,
            run=run,
            output_type=str(results["configs"][task].get("output_type", "unknown")),
            prompts=prompts,
            scores=scores,
            answers=answers,
            harness={name: results.get(name, {}).get(task) for name in _BY_TASK} | {"results": figures},
            sequences=0,
            steps=0,
            mean_live=0.0,
            cut=0,
            experts=None,
            seconds=float(results.get("total_evaluation_time_seconds") or 0.0) / len(results["results"]),
        )


def _samples(path: Path) -> Sequence[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        found: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
    except OSError as error:
        raise RecordError(
            f"{path} is not there: pairs need every example. Run the harness with --log_samples."
        ) from error
    except ValueError as error:
        raise RecordError(f"{path} is cut short. Run the harness again.") from error
    # The harness adds examples as they come; pairs are by number.
    return sorted(found, key=lambda sample: (str(sample["filter"]), sample["doc_id"]))
