"""The whole profile: measure steps, fit, and say what each policy is expected to do."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sere.artifact import Artifact, CostModel, PolicyCost, is_short_form, named_policy, predict_seconds
from sere.engines.transformers import describe
from sere.engines.transformers.describe import place
from sere.errors import DataError, PolicyError
from sere.evaluation.stepwise import Rerouting
from sere.profiling.config import ProfileConfig
from sere.profiling.expect import expect
from sere.profiling.fit import fit
from sere.profiling.measure import Progress, expert_bytes, measure_steps
from sere.profiling.record import ProfileRecord, StepRecord
from sere.provenance import Provenance
from sere.routing import parse_policy

CONTROL = "none"


def profile(
    model: Any,
    ids: Tensor,
    artifact: Artifact | None,
    policies: Sequence[str],
    config: ProfileConfig | None = None,
    *,
    metric: str | None = None,
    progress: Progress | None = None,
) -> ProfileRecord:
    """Measure what a decoding step costs on the model's device, and what policies do to it.

    Args:
        model: A Transformers causal language model; put into evaluation mode.
        ids: Text from which distinct experts are counted, shape [N, L], int64, with N at least the largest
            batch size and L at least ``prompt_tokens + expected_tokens``.
        artifact: Calibrated statistics; None if no policy needs any.
        policies: Short forms, or names of operating points of the artifact.
        config: Sizes.
        metric: Similarity to serve; None for the artifact's default or the operating point's own.
        progress: Told what is about to run.

    Raises:
        DataError: If the text is too short, or nothing can be fitted.
        PolicyError: If a policy is malformed, or needs an artifact and there is none.
        ArtifactError: If the artifact is of another model.
        EngineError: If the model cannot be re-routed.
        MissingError: If SciPy is not installed.

    """
    started, config = time.monotonic(), config or ProfileConfig()
    record = describe(model.eval())
    if artifact is not None:
        artifact.check_model(record)
    plan = [_planned(text, artifact, metric) for text in dict.fromkeys((CONTROL, *policies))]
    length = config.prompt_tokens + config.expected_tokens
    if ids.shape[0] < config.batch_sizes[-1] or ids.shape[1] < length:
        raise DataError(
            f"a profile at batch {config.batch_sizes[-1]} needs {config.batch_sizes[-1]} sequences of "
            f"{length} tokens, got {ids.shape[0]} of {ids.shape[1]}. Give more text or smaller batches."
        )
    provenance = Provenance.now(
        model, artifact=artifact.hash if artifact else None, seeds={"profile": config.seed}
    )
    steps = measure_steps(model, config, progress)
    size, where = expert_bytes(model), place(model)
    fitted = fit(steps, size)
    cost = CostModel(
        device=where.device,
        dtype=where.dtype,
        threads=torch.get_num_threads() if model.device.type == "cpu" else None,
        expert_bytes=size,
        fixed=fitted.fixed,
        byte=fitted.byte,
        row=fitted.row,
        error=fitted.error,
        rows=(config.batch_sizes[0], config.batch_sizes[-1]),
    )
    expected = _expected(model, ids[:, :length].to(model.device), plan, config, progress)
    cost = cost.model_copy(update={"policies": expected})
    return ProfileRecord(
        provenance=provenance,
        model=record,
        artifact=artifact.hash if artifact else None,
        config=dataclasses.asdict(config),
        steps=[
            StepRecord(**dataclasses.asdict(step), predicted=predict_seconds(cost, step.rows, step.experts))
            for step in steps
        ],
        cost=cost,
        seconds=time.monotonic() - started,
    )


@dataclasses.dataclass(frozen=True)
class Planned:
    """A policy to measure: its short form, and what re-routes."""

    form: str
    metric: str | None
    rerouting: Rerouting


def _planned(text: str, artifact: Artifact | None, metric: str | None) -> Planned:
    named = named_policy(text, artifact, metric)
    form = text
    if not is_short_form(text) and artifact is not None:
        form = artifact.operating_points[text].policy
    if named.policy.requires and artifact is None:
        raise PolicyError(
            f"policy {form!r} needs an artifact. Name the folder that 'sere calibrate' wrote, or leave "
            "the policy out."
        )
    served = artifact if named.policy.requires else None
    return Planned(form, named.metric, Rerouting(served, parse_policy(form), named.metric))


def _expected(
    model: Any, ids: Tensor, plan: list[Planned], config: ProfileConfig, progress: Progress | None
) -> tuple[PolicyCost, ...]:
    """Count and time each policy at each size; the router's own choice is that of the control."""
    found: list[PolicyCost] = []
    for each in plan:
        sizes = []
        for position, rows in enumerate(config.batch_sizes):
            if progress is not None:
                progress(f"{each.form} in steps of {rows} rows")
            size = expect(model, ids[:rows], each.rerouting, config.prompt_tokens)
            if found:
                size = size.model_copy(update={"before": found[0].sizes[position].before})
            sizes.append(size)
        found.append(PolicyCost(policy=each.form, metric=each.metric, sizes=tuple(sizes)))
    return tuple(found)
