"""Two artifacts of one model, layer by layer: whether it matters what the model was calibrated on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sere.artifact import Artifact, ModelRecord
from sere.errors import ArtifactError, did_you_mean
from sere.inspection.agreement import LEAST, Agreement, agreement
from sere.inspection.critical import THRESHOLDS, check_threshold, critical
from sere.inspection.layer import matrix
from sere.inspection.substitutes import pairs


@dataclass(frozen=True)
class CriticalBoth:
    """Critical experts of two artifacts at one threshold.

    Attributes:
        threshold: The threshold.
        first: Critical experts in the first artifact, how many.
        second: In the second.
        both: In both.
        chance: Expected in both if the second's were drawn at random.

    """

    threshold: float
    first: int
    second: int
    both: int
    chance: float


@dataclass(frozen=True)
class LayerAgainst:
    """One layer in two artifacts.

    Attributes:
        name: Module path of the experts module, in the first.
        index: Decoder layer number.
        num_experts: E.
        metric: The similarity compared.
        means: Mean similarity of a pair in the first and in the second. Where they differ much, a threshold
            does not mean the same in both.
        agreement: How far both choose the same substitutes.
        critical: Critical experts of both at each threshold.

    """

    name: str
    index: int
    num_experts: int
    metric: str
    means: tuple[float, float]
    agreement: Agreement
    critical: tuple[CriticalBoth, ...]


def compare(
    first: Artifact,
    second: Artifact,
    *,
    metric: str | None = None,
    layers: Sequence[int] | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    mixed: bool = False,
) -> tuple[LayerAgainst, ...]:
    """Compare the similarities of two artifacts of one model.

    Args:
        first: The artifact whose similarities losses are counted in.
        second: The artifact that it is compared with.
        metric: Similarity to compare; None takes the first's default.
        layers: Decoder layer numbers; None takes all with at least three experts.
        thresholds: Similarities that substitutes must reach.
        mixed: Allow models of different names, such as a fine-tuned one and its base.

    Raises:
        ArtifactError: If the two are of models of other shape, or, without ``mixed``, of another name; if one
            lacks the metric or a layer; if no layer has at least three experts.

    """
    check_same_model(first.model, second.model, mixed=mixed)
    metric = metric or first.default_metric
    for which, artifact in (("first", first), ("second", second)):
        if metric not in artifact.metrics:
            raise ArtifactError(
                f"the {which} artifact has no {metric!r} to compare.{did_you_mean(metric, artifact.metrics)}"
            )
    for threshold in thresholds:
        check_threshold(threshold)
    wanted = first.layers if layers is None else tuple(first.layer_at(index) for index in layers)
    wanted = tuple(layer for layer in wanted if layer.num_experts >= LEAST)
    if not wanted:
        raise ArtifactError("with fewer than three experts there is one substitute and nothing to compare.")
    found = []
    for layer in wanted:
        one = matrix(first, layer.name, metric)
        two = matrix(second, second.layer_at(layer.index).name, metric)
        actives = tuple(layer.top_k * times for times in (1, 2, 4))
        both = []
        for threshold in thresholds:
            sets = [set(critical(each, threshold, layer.top_k).experts) for each in (one, two)]
            chance = len(sets[0]) * len(sets[1]) / layer.num_experts
            both.append(CriticalBoth(threshold, len(sets[0]), len(sets[1]), len(sets[0] & sets[1]), chance))
        found.append(
            LayerAgainst(
                name=layer.name,
                index=layer.index,
                num_experts=layer.num_experts,
                metric=metric,
                means=(float(np.mean(pairs(one))), float(np.mean(pairs(two)))),
                agreement=agreement(one, two, actives),
                critical=tuple(both),
            )
        )
    return tuple(found)


def check_same_model(first: ModelRecord, second: ModelRecord, *, mixed: bool = False) -> None:
    """See that two artifacts belong to one model: its routing shape, its name without folder or owner.

    Raises:
        ArtifactError: If they do not.

    """
    if first.fingerprint != second.fingerprint:
        raise ArtifactError(
            f"these artifacts are of models of different shape: {_called(first)} and {_called(second)}. Only "
            "artifacts of one model can be compared."
        )
    if not mixed and _last(first) != _last(second):
        raise ArtifactError(
            f"these artifacts are of different models: {_called(first)} and {_called(second)}. If that is "
            "what you want to compare, such as a fine-tuned model and its base, add --mixed."
        )


def _called(record: ModelRecord) -> str:
    return f"{record.id or 'a model without a name'} ({record.architecture}, shape {record.fingerprint})"


def _last(record: ModelRecord) -> str:
    return record.id.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
