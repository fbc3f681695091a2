"""Import of the published code's ``similarity_matrices.pt``."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from sere.artifact.fields import METRICS
from sere.artifact.schema import CalibrationRecord, LayerRecord
from sere.errors import ArtifactError, did_you_mean
from sere.version import __version__


def read(path: Path, layers: Sequence[LayerRecord], metric: str) -> dict[str, Tensor]:
    """Read the matrices by layer name, float32 [E, E].

    Keys of the file are decoder layer numbers. Cosines are stored there as ``(cosine + 1) / 2``.

    Raises:
        ArtifactError: If the metric is unknown, the file cannot be read without running code, or it
            does not fit ``layers``.

    """
    if metric not in METRICS:
        raise ArtifactError(f"there is no metric {metric!r}.{did_you_mean(metric, METRICS)}")
    content = _content(path)
    numbers = {layer.index for layer in layers}
    if set(content) != numbers:
        raise ArtifactError(
            f"{path} holds layers {sorted(content)}, the model has {sorted(numbers)}. "
            "Take the file that was made for this model."
        )
    matrices = {}
    for layer in layers:
        matrix = content[layer.index]
        if matrix.layout != torch.strided or matrix.is_quantized or matrix.is_meta or matrix.is_complex():
            raise ArtifactError(
                f"{path}: layer {layer.index} is no plain dense matrix of real numbers. Take the file as the "
                "published code writes it."
            )
        if tuple(matrix.shape) != (layer.num_experts, layer.num_experts):
            raise ArtifactError(
                f"{path}: layer {layer.index} has shape {tuple(matrix.shape)}, the model has "
                f"{layer.num_experts} experts there. Take the file that was made for this model."
            )
        value = matrix.detach().to("cpu", torch.float32)
        matrices[layer.name] = 2 * value - 1 if metric == "cosine" else value
    return matrices


def record(path: Path) -> CalibrationRecord:
    """Calibration record of an import."""
    return CalibrationRecord(source="reference", data=path.name, sere_version=__version__)


def _content(path: Path) -> dict[int, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ArtifactError(f"there is no file {path}. Check the path.") from error
    except pickle.UnpicklingError as error:
        raise ArtifactError(
            f"{path} holds more than tensors, or is damaged; it was not loaded. Only open files from people "
            "that you trust, and ask for a plain {layer: tensor} dictionary."
        ) from error
    except Exception as error:  # a damaged file can break the reader anywhere
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".") or type(error).__name__
        raise ArtifactError(f"{path} cannot be read as a PyTorch file: {reason}. Copy it again.") from error
    if not isinstance(content, dict) or not all(
        isinstance(key, int) and isinstance(value, Tensor) for key, value in content.items()
    ):
        raise ArtifactError(f"{path} is no {{layer number: tensor}} dictionary. Name similarity_matrices.pt.")
    return content
