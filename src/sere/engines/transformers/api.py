"""Apply a policy to a model, and remove it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from sere.artifact import Artifact, GuardOption, NamedPolicy, is_short_form, named_policy
from sere.engines.transformers.decoding import gathers
from sere.engines.transformers.describe import configured, describe, place
from sere.engines.transformers.handle import MARK, Handle
from sere.engines.transformers.layers import MoELayer, Survey, survey, unwrap
from sere.engines.transformers.rerouting import Rerouting, device_of
from sere.engines.transformers.scores import ScoreSource
from sere.engines.transformers.sources import with_scores
from sere.errors import EngineError, PolicyError
from sere.routing import LayerStatistics, PerLayer, Policy

_log = logging.getLogger("sere")

ArtifactLike = Artifact | str | Path | None


def apply(
    model: nn.Module,
    artifact: ArtifactLike,
    policy: Policy | str,
    *,
    metric: str | None = None,
    counting: bool = True,
    guard: GuardOption = None,
) -> Handle:
    """Re-route ``model`` by ``policy`` until :func:`remove`.

    The model's own methods stay as they are: ``generate``, ``generate_batch`` and plain forward calls
    pass through the policy, eager or compiled. Code compiled before is dropped, see
    :func:`~sere.engines.transformers.handle.forget_compiled`. While it is applied, ``generate`` keeps
    ``grouped_mm`` experts where it would switch to ``batched_mm``. Rows are told apart as
    :mod:`sere.engines.transformers.rows` says; in particular, generating without a cache has no decode
    rows. A continuous-batching manager that has captured device graphs keeps what they were captured
    with: start it after applying, and stop it before removing.

    A policy that needs the router's scores of all experts gets them from what the router returns; how,
    is found out here, by running each layer's router on a few random rows
    (:func:`~sere.engines.transformers.fit.fit`). Layers whose router cannot be explained so are left
    out, with the reason in the banner.

    Args:
        model: A loaded Transformers model with routed experts; ``torch.compile(model)`` will do.
        artifact: An artifact, a folder or Hub id of one, or None for a policy that needs none. With
            None, an artifact that lies beside the model's weights is taken if the policy needs one.
        policy: A policy, its short form, ``sere:top_s=2,threshold=0.5``, or the name of an operating point
            of the artifact, ``balanced``.
        metric: Similarity to serve; None means the artifact's default.
        counting: Count what happens, on the device. It costs a few small operations a layer.
        guard: Steps of fewer rows than this stay as routed; a pair also gives the most rows, and ``auto``
            leaves steps alone for which the policy does not pay on this device by the artifact's cost model
            (``sere profile --write``), or else by what was tuned with the operating point. See
            :class:`~sere.routing.guard.Guard`.

    Returns:
        The handle, with counters, banner and ``remove()``.

    Raises:
        EngineError: If the model cannot be re-routed, is re-routed already, or an artifact is needed; or
            if the policy needs the router's scores and no layer shows them.
        ArtifactError: If the artifact is of another model, or damaged.
        PolicyError: If the policy is wrong, or the guard.

    """
    root = unwrap(model)
    found = survey(root)
    _refuse_second(root, found)
    artifact, named = _named(root, artifact, policy, metric)
    policy, metric = named.policy, named.metric
    limits = named.guarded_by(guard, artifact, place(root) if guard == "auto" else None)
    if artifact is not None:
        artifact.check_model(describe(root))
    notes = _notes(configured(root), found, policy)
    sources: dict[str, ScoreSource] = {}
    if "scores" in policy.needs:
        whole, (found, sources) = found, with_scores(root, found, policy.name)
        notes += _without_scores(whole, found, policy)
    with torch.inference_mode(False):  # What is made here may be used outside of the caller's inference mode.
        reroutings = tuple(
            Rerouting.of(
                layer,
                policy.of_layer(layer.index),
                _statistics(artifact, layer, policy.of_layer(layer.index), metric),
                counting,
                sources.get(layer.name),
                limits,
            )
            for layer in found.layers
        )
    handle = Handle(root, found, policy, named.label, artifact, reroutings, notes)
    handle.install()
    for note in notes:
        warnings.warn(f"sere: {note}", RuntimeWarning, stacklevel=2)
    _log.info("%s", handle.banner())
    return handle


def remove(model: nn.Module) -> None:
    """Take off what :func:`apply` put on ``model``, on a wrapper around it or on a part of it.

    Raises:
        EngineError: If nothing is applied to it.

    """
    root = unwrap(model)
    handle = next((part.__dict__[MARK] for part in root.modules() if MARK in part.__dict__), None)
    if not isinstance(handle, Handle):
        raise EngineError(f"no policy is applied to this {type(root).__name__}. Call sere.apply first.")
    handle.remove()


@contextmanager
def rerouted(
    model: nn.Module,
    artifact: ArtifactLike,
    policy: Policy | str,
    *,
    metric: str | None = None,
    counting: bool = True,
    guard: GuardOption = None,
) -> Iterator[Handle]:
    """Re-route ``model`` inside a ``with`` block; arguments and errors as :func:`apply`.

    The hooks come off at the end of the block, whatever happens in it.
    """
    handle = apply(model, artifact, policy, metric=metric, counting=counting, guard=guard)
    try:
        yield handle
    finally:
        handle.remove()


def _refuse_second(root: nn.Module, found: Survey) -> None:
    owners = (root, *(layer.module for layer in found.layers))
    handle = next((owner.__dict__[MARK] for owner in owners if MARK in owner.__dict__), None)
    if handle is not None:
        raise EngineError(
            f"{handle.label} is applied to this model already. Leave its block or call sere.remove(model) "
            "before another policy is applied."
        )


def _named(
    root: nn.Module, artifact: ArtifactLike, policy: Policy | str, metric: str | None
) -> tuple[Artifact | None, NamedPolicy]:
    """Load the artifact, if one is given or needed, and look the policy up."""
    if not isinstance(policy, (str, Policy)):
        raise PolicyError(
            f"a policy is a Policy, its short form or the name of an operating point, not "
            f"{type(policy).__name__}. Write 'sere:top_s=2', say."
        )
    if artifact is not None and not isinstance(artifact, Artifact):
        artifact = Artifact.from_pretrained(artifact)
    if artifact is None and isinstance(policy, str) and not is_short_form(policy):
        artifact = _beside(root)
    if isinstance(policy, str):
        named = named_policy(policy, artifact, metric)
    else:
        named = NamedPolicy(policy.name, policy, metric)
    if artifact is None and named.policy.requires:
        artifact = _beside(root)
        if artifact is None:
            raise EngineError(
                f"policy {named.policy.name!r} needs an artifact with "
                f"{', '.join(sorted(named.policy.requires))}. Calibrate the model first (sere calibrate, or "
                "sere.calibrate), or name the folder of its artifact."
            )
    return artifact, named


def _beside(root: nn.Module) -> Artifact | None:
    """Load the artifact that lies beside the model's weights, if there is one."""
    folder = getattr(getattr(configured(root), "config", None), "_name_or_path", "")
    if folder and Path(folder).is_dir() and Artifact.exists_in(folder):
        return Artifact.from_pretrained(folder)
    return None


def _statistics(
    artifact: Artifact | None, layer: MoELayer, policy: Policy, metric: str | None
) -> LayerStatistics:
    if artifact is None:
        return LayerStatistics()
    # By number: a wrapper (an adapter, a multimodal model) puts a prefix before the module's path.
    name = artifact.layer_at(layer.index).name
    return artifact.statistics(name, requires=policy.requires, metric=metric, device=device_of(layer.module))


def _notes(root: nn.Module, found: Survey, policy: Policy) -> tuple[str, ...]:
    notes: list[str] = []
    reasons = [policy.of_layer(layer.index).inert(layer.top_k) for layer in found.layers]
    # A policy by layers may spare some of them on purpose.
    told = all(reasons) if isinstance(policy, PerLayer) else any(reasons)
    if policy.name != "none" and told:
        reason = next(filter(None, reasons))
        whole = "it changes nothing in this model" if all(reasons) else "it changes only part of this model"
        notes.append(
            f"{policy.name}: {reason}, so {whole}. Choose a stronger setting, unless it is a control."
        )
    if gathers(root):
        notes.append(
            "the model's experts implementation is batched_mm, which reads the weights of every slot: fewer "
            "distinct experts save nothing. Call model.set_experts_implementation('grouped_mm') first."
        )
    return tuple(notes)


def _without_scores(whole: Survey, found: Survey, policy: Policy) -> tuple[str, ...]:
    missing = len(whole.layers) - len(found.layers)
    if not missing:
        return ()
    return (
        f"{policy.name} needs the router's scores of all experts, which {missing} of {len(whole.layers)} "
        "layers do not show; these stay as routed. The handle's banner gives the reasons.",
    )
