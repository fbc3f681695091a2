"""Compare policies with the unmodified model, side by side, in one run."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sere.artifact import Artifact, named_policy
from sere.demo.data import heldout_texts
from sere.demo.tasks import Example
from sere.engines.transformers import describe, find_layers
from sere.errors import DataError, EngineError, PolicyError
from sere.evaluation.company import company, sequences_for_company
from sere.evaluation.config import CompareConfig
from sere.evaluation.exact_match import bundled_examples, load_examples, prepare, solve
from sere.evaluation.fidelity import Fidelity, fidelity
from sere.evaluation.greedy import check_lengths
from sere.evaluation.provenance import Provenance
from sere.evaluation.record import ComparisonRecord, PolicyResult
from sere.evaluation.speed import Speed, measure
from sere.evaluation.stepwise import ExpertCount, Rerouting, text_logits
from sere.evaluation.summarise import experts_record, fidelity_record, speed_record, tasks_record
from sere.evaluation.tokens import check_vocabulary, context_length, heldout_sequences
from sere.routing import Policy, make_policy

UNMODIFIED = "unmodified"
NONE = "none"

Progress = Callable[[str], None]


def compare(
    model: Any,
    tokenizer: Any,
    artifact: Artifact | None,
    policies: Sequence[str | Policy],
    config: CompareConfig | None = None,
    *,
    texts: Sequence[str] | None = None,
    metric: str | None = None,
    progress: Progress | None = None,
) -> ComparisonRecord:
    """Measure experts read, fidelity, exact match and speed of every policy at every batch size.

    The unmodified model and the control ``none`` are always there, and first. Logits of one batch are
    held for two policies at a time: batch x (length - prompt) x vocabulary values each.

    Args:
        model: A Transformers causal language model with routed experts; put into evaluation mode.
        tokenizer: Its tokenizer.
        artifact: Calibrated statistics; None if no policy needs any.
        policies: Policies, their short forms, ``sere:top_s=2,threshold=0.5``, or operating points by name.
        config: Settings.
        texts: Held-out texts; None for the bundled ones.
        metric: Similarity metric; None for the artifact's default.
        progress: Told in words what is about to run.

    Raises:
        PolicyError: If a policy is malformed or given twice.
        ArtifactError: If the artifact belongs to another model, or cannot serve ``metric``.
        EngineError: If the model cannot be re-routed, predicts no tokens, or gives logits that are NaN.
        DataError: If texts or tasks are missing, too little, or too long for the model.

    Everything that can be refused is looked at before anything is measured, but for the NaN.

    """
    started = time.monotonic()
    config = config or CompareConfig()
    say: Progress = progress or (lambda _text: None)
    model.eval()
    record = describe(model)
    if artifact is not None:
        artifact.check_model(record)
    variants = plan(artifact, policies, metric)
    if model.get_output_embeddings() is None:
        raise EngineError(f"{type(model).__name__} predicts no tokens. Load it as a causal language model.")
    _check_context(model, config)
    texts = heldout_texts() if texts is None else texts
    length, seed = config.sequence_length, config.seed
    heldout = {
        size: heldout_sequences(tokenizer, texts, config.sequences_for(size), length, seed)
        for size in config.batch_sizes
    }
    examples = task_examples(config)
    prompts, budgets = prepare(tokenizer, examples)
    check_lengths(model, prompts, budgets)
    check_vocabulary(model, [*prompts, *(ids.flatten().tolist() for ids in heldout.values())])
    provenance = Provenance.now(
        model,
        fingerprint=record.fingerprint,
        artifact=None if artifact is None else artifact.hash,
        seeds={"texts and intervals": config.seed},
    )
    results: list[PolicyResult] = []
    for size, ids in heldout.items():
        at_size = _at_batch(model, tokenizer, variants, ids.to(model.device), examples, size, config, say)
        if config.company and size > 1:
            pool = sequences_for_company(tokenizer, texts, size, length, seed)
            if pool is not None:
                _add_company(model, variants, pool.to(model.device), at_size, config, say)
        results += at_size
    return ComparisonRecord(
        provenance=provenance,
        model=record,
        artifact=None if artifact is None else artifact.hash,
        metric=metric,
        texts_sha256=hashlib.sha256("\0".join(texts).encode()).hexdigest(),
        config=dataclasses.asdict(config),
        results=results,
        seconds=time.monotonic() - started,
    )


def plan(
    artifact: Artifact | None, policies: Sequence[str | Policy], metric: str | None = None
) -> dict[str, Rerouting]:
    """Put the two controls before ``policies``, by name; nothing of a model is needed to check them.

    Raises:
        PolicyError: If a policy is malformed, given twice, or needs an artifact that is not there.
        ArtifactError: If the artifact cannot serve what a policy needs.

    """
    variants = {
        UNMODIFIED: Rerouting(None, None),
        NONE: Rerouting(None, make_policy(NONE)),
    }
    for given in policies:
        own = metric
        if not isinstance(given, str):
            name, policy = given.name, given
        elif given in (UNMODIFIED, NONE):
            continue
        else:
            named = named_policy(given, artifact, metric)
            name, policy, own = given, named.policy, named.metric
        if name in (UNMODIFIED, NONE):
            continue
        if name in variants:
            raise PolicyError(f"policy {name!r} is given twice. Give each once, in its short form.")
        if policy.requires and artifact is None:
            raise PolicyError(f"policy {name!r} needs an artifact. Calibrate the model and give its folder.")
        if policy.requires and artifact is not None:
            artifact.statistics(artifact.layers[0].name, requires=policy.requires, metric=own)
        variants[name] = Rerouting(artifact, policy, own)
    return variants


def task_examples(config: CompareConfig) -> list[Example]:
    """Prompts with answers that ``config`` asks for; none if it asks for no tasks.

    Raises:
        DataError: As :func:`~sere.evaluation.exact_match.load_examples`.

    """
    if config.tasks is None:
        return []
    if config.tasks == "bundled":
        return bundled_examples(config.examples_per_task)
    return load_examples(config.tasks)


def _check_context(model: Any, config: CompareConfig) -> None:
    limit = context_length(model)
    if limit is not None and config.sequence_length > limit:
        raise DataError(
            f"sequences of {config.sequence_length} tokens are longer than the model's context of {limit}. "
            "Ask for shorter ones."
        )


def _at_batch(
    model: Any,
    tokenizer: Any,
    variants: dict[str, Rerouting],
    ids: Tensor,
    examples: list[Example],
    size: int,
    config: CompareConfig,
    say: Progress,
) -> list[PolicyResult]:
    near, experts = _fidelity(model, variants, ids, size, config, say)
    speeds: dict[str, Speed] = {}
    rounds = config.speed_rounds
    if rounds:
        say(f"batch {size}: speed")
        speeds = measure(model, ids[:size], variants, prompt=config.prompt_tokens, rounds=rounds)
    width = max(layer.num_experts for layer in find_layers(model))
    results = []
    for name, rerouting in variants.items():
        tasks = None
        if examples:
            say(f"batch {size}: tasks under {name}")
            with rerouting.on(model, counting=False):
                tasks = tasks_record(solve(model, tokenizer, examples, size))
        counted = experts[NONE if rerouting.policy is None else name]
        result = PolicyResult(
            policy=name,
            batch_size=size,
            experts=experts_record(counted, width),
            fidelity=fidelity_record(near[name], config),
            tasks=tasks,
            speed=speed_record(speeds[name], rounds) if rounds else None,
        )
        results.append(result)
    return results


def _add_company(
    model: Any,
    variants: dict[str, Rerouting],
    ids: Tensor,
    results: list[PolicyResult],
    config: CompareConfig,
    say: Progress,
) -> None:
    for result in results:
        size, rerouting = result.batch_size, variants[result.policy]
        say(f"batch {size}: other company under {result.policy}")
        result.company = company(model, ids, size, config.prompt_tokens, rerouting, config.seed)


def _fidelity(
    model: Any, variants: dict[str, Rerouting], ids: Tensor, size: int, config: CompareConfig, say: Progress
) -> tuple[dict[str, Fidelity], dict[str, ExpertCount]]:
    parts: dict[str, list[Fidelity]] = {name: [] for name in variants}
    experts = {name: ExpertCount() for name in variants}
    batches = torch.split(ids, size)
    for number, batch in enumerate(batches, start=1):
        targets = batch[:, config.prompt_tokens + 1 :]
        reference = torch.empty(0)
        for name, rerouting in variants.items():
            say(f"batch {size}: text {number} of {len(batches)} under {name}")
            logits = text_logits(model, batch, config.prompt_tokens, rerouting, config.mode, experts[name])
            if rerouting.policy is None:
                if logits.isnan().any():
                    raise EngineError(
                        f"the unmodified model's logits are NaN in {logits.dtype}. Load it in another type "
                        "(--dtype), such as float32."
                    )
                reference = logits
            parts[name].append(fidelity(reference, logits, targets))
    return {name: Fidelity.join(part) for name, part in parts.items()}, experts
