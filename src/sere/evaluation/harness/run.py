"""The whole evaluation: every task under every policy at every batch size, side by side."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sere.artifact import Artifact
from sere.engines.transformers import describe
from sere.errors import DataError, EngineError, PolicyError
from sere.evaluation.compare import NONE, UNMODIFIED, plan
from sere.evaluation.harness import folder as files
from sere.evaluation.harness.assemble import averages, result_of
from sere.evaluation.harness.cell import Cell
from sere.evaluation.harness.config import EvalConfig
from sere.evaluation.harness.folder import Folder
from sere.evaluation.harness.installed import quiet, require_harness
from sere.evaluation.harness.measure import measure
from sere.evaluation.harness.record import EvalRecord
from sere.evaluation.harness.results import write_results
from sere.evaluation.harness.tasks import Chosen, choose
from sere.evaluation.stepwise import Rerouting
from sere.provenance import Provenance
from sere.routing import Policy

Progress = Callable[[str], None]
_FREE = ("tasks", "batch_sizes", "control", "run_code")
"""Settings in which the results of one folder may differ."""
_VERSIONS = ("sere", "torch", "transformers", "lm_eval")


def run_eval(
    model: Any,
    tokenizer: Any,
    artifact: Artifact | None,
    policies: Sequence[str | Policy],
    config: EvalConfig,
    out: str | Path,
    *,
    metric: str | None = None,
    progress: Progress | None = None,
) -> EvalRecord:
    """Measure what is not measured yet, and put everything together.

    Task by task the unmodified model, the control ``none`` and each policy get the same prompts in the same
    order, the same seeds and the same number of live sequences. Every task is on disk as soon as it is
    measured under a policy: interrupted, the same call goes on with the first one that is missing.

    Args:
        model: A Transformers causal language model with routed experts; put into evaluation mode.
        tokenizer: Its tokenizer.
        artifact: Calibrated statistics; None if no policy needs any.
        policies: As for :func:`sere.evaluation.compare`.
        config: Settings.
        out: Folder of this evaluation.
        metric: Similarity metric; None for the artifact's default.
        progress: Told in words what runs.

    Raises:
        MissingError: If the harness is not installed.
        PolicyError: If a policy is malformed, given twice, or could do nothing here.
        ArtifactError: If the artifact belongs to another model, or cannot serve ``metric``.
        EngineError: If the model cannot be re-routed, or predicts no tokens.
        DataError: If a task is unknown or fails, or ``out`` cannot be written to.
        RecordError: If ``out`` holds another evaluation, or a file there is cut short.

    """
    require_harness()
    say: Progress = progress or (lambda _text: None)
    model.eval()
    record = describe(model)
    if artifact is not None:
        artifact.check_model(record)
    variants = plan(artifact, policies, metric)
    check_policies(variants, config)
    if not config.control:
        variants.pop(NONE)
    if model.get_output_embeddings() is None:
        raise EngineError(f"{type(model).__name__} predicts no tokens. Load it as a causal language model.")
    if config.chat and getattr(tokenizer, "chat_template", None) is None:
        raise DataError("the tokenizer has no chat template. Leave --chat out.")
    run = Provenance.now(
        model,
        fingerprint=record.fingerprint,
        artifact=None if artifact is None else artifact.hash,
        seeds={"few-shot examples, sampling and intervals": config.seed},
    )
    settings = dataclasses.asdict(config)
    identity = {
        "kind": "sere-eval",
        "model": record.id,
        "fingerprint": record.fingerprint,
        "artifact": run.artifact,
        "metric": metric,
        "dtype": run.dtype,
        "device": run.device,
        "versions": {name: run.versions.get(name) for name in _VERSIONS},
        **{name: value for name, value in settings.items() if name not in _FREE},
    }
    folder = Folder(out, identity)
    chosen = choose(config, say)
    measured = _measure(model, tokenizer, variants, chosen, config, folder, run, say)
    cells = _cells(folder, variants, chosen, config)
    names = {task: part for part, tasks in chosen.parts.items() for task in tasks}
    for size in config.batch_sizes:
        for policy in variants:
            own = [cell for cell in cells if (cell.policy, cell.batch_size) == (policy, size)]
            write_results(folder, own, chosen, config, run, record.id)
    found = EvalRecord(
        provenance=run,
        runs=folder.runs({cell.run for cell in cells}),
        model=record,
        artifact=run.artifact,
        metric=metric,
        config=settings,
        results=[
            result_of(c, names[c.task], folder.get(c.task, UNMODIFIED, c.batch_size), config.seed)
            for c in cells
        ],
        averages=averages(cells, names, config.seed),
        measured=measured,
        seconds=sum(cell.seconds for cell in cells),
    )
    found.save(folder.path / files.RECORD)
    return found


def check_policies(variants: dict[str, Rerouting], config: EvalConfig) -> None:
    """Refuse what would measure nothing.

    Raises:
        PolicyError: If a policy leaves prompts alone and prompts are all there is.

    """
    if config.scoring == "decode":
        return
    for name, rerouting in variants.items():
        if rerouting.policy is not None and name != NONE and rerouting.policy.phase == "decode":
            raise PolicyError(
                f"--scoring prompt reads answers in one forward, where {name!r} changes nothing, as it "
                "re-routes decoding steps only. Leave --scoring out, or write the policy with phase=all."
            )


def _measure(
    model: Any,
    tokenizer: Any,
    variants: dict[str, Rerouting],
    chosen: Chosen,
    config: EvalConfig,
    folder: Folder,
    run: Provenance,
    say: Progress,
) -> int:
    from sere.evaluation.harness.lm import LiveLM

    template = getattr(tokenizer, "chat_template", None) is not None
    missing = [
        (size, task, policy)
        for size in config.batch_sizes
        for task in chosen.tasks
        for policy in variants
        if folder.get(task, policy, size) is None
    ]
    if missing:
        folder.add_run(run)
    started = time.monotonic()
    for number, (size, task, policy) in enumerate(missing):
        each = (time.monotonic() - started) / max(number, 1)
        left = f", about {each * (len(missing) - number) / 60:.0f} min to go" if number else ""
        where = f"{number + 1} of {len(missing)}: {task} under {policy}, batch {size}"

        def tell(done: int, total: int, where: str = where, left: str = left) -> None:
            say(f"{where}: {done} of {total} sequences{left}")

        with quiet():
            lm = LiveLM(model, tokenizer, size, config.scoring, config.seed, tell)
        say(where)
        chat = config.chat if config.chat is not None else template and task in chosen.of_paper
        limit = chosen.limit(task, config.limit)
        made = chosen.tasks[task]
        folder.put(*measure(lm, task, made, policy, variants[policy], config, run.created, limit, chat))
    return len(missing)


def _cells(folder: Folder, variants: dict[str, Rerouting], chosen: Chosen, config: EvalConfig) -> list[Cell]:
    return [
        cell
        for size in config.batch_sizes
        for task in chosen.tasks
        for policy in variants
        if (cell := folder.get(task, policy, size)) is not None
    ]
