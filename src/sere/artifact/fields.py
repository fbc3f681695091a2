"""Which statistics an artifact stores, and which similarity follows from which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from sere.artifact.schema import LayerRecord, Manifest, fingerprint
from sere.errors import ArtifactError

CKA_METRICS: Final = (
    "cka_linear_biased",
    "cka_linear_unbiased",
    "cka_rbf_biased",
    "cka_rbf_unbiased",
    "cka_poly_biased",
    "cka_poly_unbiased",
)
METRICS: Final = ("frobenius", "cosine", *CKA_METRICS)
"""Every similarity there is, the default first."""

ROUTED_FIELDS: Final = (
    "routed_count",
    "routed_norm",
    "routed_gram",
    "routed_cross",
    "routed_target",
    "routed_source",
)
"""Sums over routed tokens alone, stored if ``sere calibrate --routed-moments`` was asked for them."""

PREDICTOR: Final = "norm_predictor"
"""Linear functions that predict output norms, stored if ``sere calibrate --norm-predictor`` fitted them."""

FIELDS: Final = ("gram", "gram_normalised", "norm", *METRICS, *ROUTED_FIELDS, PREDICTOR)
"""Every statistic that may be stored, all float32; see :func:`shape`."""


def shape(field: str, layer: LayerRecord, width: int) -> tuple[int, ...]:
    """Shape of a stored statistic of a layer; see ``docs/artifact.md``.

    Args:
        field: Its name.
        layer: The layer.
        width: Values in a row of ``norm_predictor``: the width of the layer's input, which need not be the
            model's, and 1.

    """
    if field == PREDICTOR:
        return (layer.num_experts, max(width, 2))
    return (layer.num_experts,) * (1 if field in ("norm", "routed_norm") else 2)


def how_to_get(field: str) -> str:
    """Say how to get an optional statistic that an artifact does not store; empty for any other."""
    if field in ROUTED_FIELDS:
        return " Calibrate again with --routed-moments."
    if field == PREDICTOR:
        return " Calibrate again with --norm-predictor."
    return ""


def source_field(metric: str, fields: tuple[str, ...]) -> str | None:
    """Name the stored field that ``metric`` is read from, or None if it is not there.

    Cosine follows from ``gram_normalised``, whose entries are means of rowwise cosines.
    """
    if metric in fields:
        return metric
    return "gram_normalised" if metric == "cosine" and "gram_normalised" in fields else None


def tensor_name(layer: str, field: str) -> str:
    """Name of a tensor in ``sere.safetensors``."""
    return f"{layer}.{field}"


def similarity_from(field: str, value: Tensor) -> Tensor:
    """Copy of a stored field as a similarity, shape [E, E], float32; a cosine's diagonal is one."""
    copy = value.clone()
    return copy.fill_diagonal_(1.0) if field == "gram_normalised" else copy


def check(manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
    """See that the tensors are those that the manifest promises, and usable.

    Raises:
        ArtifactError: If a layer is named twice, the fingerprint is not that of the layers, a field or
            metric is unknown or cannot be served, a tensor is missing, foreign, of another shape or
            dtype, or holds NaN or infinity.

    """
    names = [layer.name for layer in manifest.layers]
    indices = [layer.index for layer in manifest.layers]
    if len(set(names)) < len(names) or len(set(indices)) < len(indices):
        raise ArtifactError("the artifact names a layer twice. Calibrate again.")
    model = manifest.model
    if model.fingerprint != fingerprint(model.architecture, model.hidden_size, manifest.layers):
        raise ArtifactError(
            f"the artifact of {model.id} does not list the layers that its fingerprint was made from. Take "
            "the artifact as it was saved, or calibrate again."
        )
    unknown = [field for field in manifest.fields if field not in FIELDS]
    if unknown:
        raise ArtifactError(
            f"the artifact has unknown statistics {unknown}. Update sere, or calibrate again."
        )
    strange = [name for name in manifest.metrics if name not in METRICS]
    if strange:
        raise ArtifactError(
            f"the artifact names {strange}, which are no similarities. Update sere, or calibrate again."
        )
    lost = [name for name in manifest.metrics if source_field(name, manifest.fields) is None]
    if lost or manifest.default_metric not in manifest.metrics:
        raise ArtifactError(
            f"the artifact promises similarities {lost or [manifest.default_metric]} that it does not hold. "
            "Calibrate again."
        )
    expected = {tensor_name(layer.name, field) for layer in manifest.layers for field in manifest.fields}
    foreign = sorted(set(tensors) - expected)
    if foreign:
        raise ArtifactError(
            f"the artifact holds tensors that belong to none of its layers: {foreign[:3]}. Calibrate again."
        )
    for layer in manifest.layers:
        for field in manifest.fields:
            _check_one(layer, field, tensors.get(tensor_name(layer.name, field)))


def _check_one(layer: LayerRecord, field: str, value: Tensor | None) -> None:
    if value is None:
        raise ArtifactError(f"layer {layer.name} has no {field!r} in the artifact. Calibrate again.")
    wanted = shape(field, layer, value.shape[-1] if value.ndim else 0)
    if tuple(value.shape) != wanted or value.dtype != torch.float32:
        raise ArtifactError(
            f"{field!r} of layer {layer.name} is {value.dtype} of shape {tuple(value.shape)}, not "
            f"torch.float32 of shape {wanted}. Take the artifact of this model, or calibrate again."
        )
    if not bool(value.isfinite().all()):
        raise ArtifactError(f"{field!r} of layer {layer.name} has NaN or infinite values. Calibrate again.")
