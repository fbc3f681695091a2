"""Models that cannot be calibrated as they are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from sere.errors import CalibrationError

_COMPUTABLE = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def refuse_quantised(model: nn.Module, model_id: str | None, experts: Iterable[nn.Module] = ()) -> None:
    """See that a model's experts are plain floating point.

    Statistics of quantised experts would have to run through kernels that serve routed tokens only.

    Args:
        model: The model.
        model_id: Its name for the message; None takes the one it was loaded by.
        experts: Its experts modules.

    Raises:
        CalibrationError: If it was loaded quantised, or an expert's weights are no float16, bfloat16,
            float32 or float64 tensors.

    """
    config = getattr(model, "config", None)
    name = model_id or getattr(config, "_name_or_path", "") or type(model).__name__
    advice = (
        "Calibrate the unquantised checkpoint (or load with dequantize=True), and serve with its artifact."
    )
    quantisation = getattr(config, "quantization_config", None)
    if quantisation is not None and not _get(quantisation, "dequantize"):
        method = str(getattr(_get(quantisation, "quant_method"), "value", _get(quantisation, "quant_method")))
        raise CalibrationError(f"{name} is quantised ({method}) and cannot be calibrated. {advice}")
    for module in experts:
        for key, weight in module.named_parameters():
            if weight.dtype not in _COMPUTABLE:
                raise CalibrationError(
                    f"{name} has expert weights of {weight.dtype} ({key}) and cannot be calibrated. {advice}"
                )


def refuse_rerouted(experts: Iterable[nn.Module]) -> None:
    """See that no policy is applied: its routing would change every later layer's inputs.

    Raises:
        CalibrationError: If one is.

    """
    if any("_sere_handle" in module.__dict__ for module in experts):
        raise CalibrationError(
            "a policy is applied to this model, so its layers see re-routed inputs. Leave its block or call "
            "sere.remove(model) before calibrating."
        )


def _get(holder: Any, key: str) -> Any:
    return holder.get(key) if isinstance(holder, dict) else getattr(holder, key, None)
