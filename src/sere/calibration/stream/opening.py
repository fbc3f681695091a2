"""Build a checkpoint's model without its weights, just as Transformers would load it."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from sere.calibration.stream.integers import PACKED
from sere.errors import CalibrationError

DEQUANTISED = {
    "fp8": "FineGrainedFP8Config",
    "compressed-tensors": "CompressedTensorsConfig",
    "mxfp4": "Mxfp4Config",
}
"""Methods that Transformers undoes while it loads, with the class of their settings."""


@dataclass(frozen=True)
class Opened:
    """A model on the meta device, and what Transformers knows about loading its weights.

    Attributes:
        model: The model; of its tensors only those that no checkpoint holds have values.
        loading: Transformers' ``LoadStateDictConfig``: weight mapping, dtypes, quantiser.
        method: Quantisation method of the checkpoint, or None.

    """

    model: Any
    loading: Any
    method: str | None


class _Built(BaseException):
    """Carries a model out of ``from_pretrained`` before it reads weights; no handler may catch it."""

    def __init__(self, model: Any, loading: Any) -> None:
        self.model, self.loading = model, loading


def open_model(
    folder: Path, *, dtype: Any = "auto", device: torch.device, trust_remote_code: bool = False
) -> Opened:
    """Build the model of ``folder`` on the meta device.

    Args:
        folder: Checkpoint folder.
        dtype: Type of the weights, as in ``from_pretrained``.
        device: Where its weights shall be put.
        trust_remote_code: As in ``from_pretrained``.

    Raises:
        CalibrationError: If it is quantised by a method that cannot be undone layer by layer.

    """
    from transformers import AutoModelForCausalLM

    found = quantisation(folder)
    method = None if found is None else str(found["quant_method"])
    options = _options(folder, found, trust_remote_code)
    try:
        with _without_weights(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that we change how a quantised one is loaded
            AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, trust_remote_code=trust_remote_code, **options
            )
    except _Built as built:
        model, loading = built.model, built.loading
    except ImportError as error:
        raise CalibrationError(
            f"{folder} is quantised ({method}), and reading it needs more: {str(error).splitlines()[0]}. "
            "Run: pip install 'sere-moe[quantised]'."
        ) from error
    else:  # pragma: no cover - a Transformers that loads in another way
        raise CalibrationError("this version of Transformers cannot be streamed. Add --in-memory.")
    loading = replace(loading, device_map={"": device})
    if loading.hf_quantizer is not None:
        model.hf_quantizer = loading.hf_quantizer
        loading.hf_quantizer.postprocess_model(model)
    # What no checkpoint holds, tables of rotary angles say, is made as Transformers makes it.
    model._move_missing_keys_from_meta_to_device(set(), loading.device_map, None, loading.hf_quantizer)
    model._initialize_missing_keys(loading.is_quantized)
    return Opened(model.eval(), loading, method)


@contextlib.contextmanager
def _without_weights() -> Iterator[None]:
    from transformers import PreTrainedModel

    def stop(model: nn.Module, _state: Any, _files: Any, loading: Any, *_: Any) -> None:
        raise _Built(model, loading)

    with mock.patch.object(PreTrainedModel, "_load_pretrained_model", staticmethod(stop)):
        yield


def quantisation(folder: Path) -> dict[str, Any] | None:
    """Return how a checkpoint says that it is quantised, None if it is not.

    Raises:
        CalibrationError: If its method cannot be undone layer by layer.

    """
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        found = raw.get("quantization_config") or raw.get("text_config", {}).get("quantization_config")
    except (OSError, ValueError, AttributeError):
        return None  # Transformers says what is wrong with it.
    if not found:
        return None
    method = str(found.get("quant_method", "unknown"))
    if method not in (*DEQUANTISED, *PACKED):
        raise CalibrationError(
            f"{folder} is quantised ({method}), which cannot be undone layer by layer; "
            f"{', '.join((*DEQUANTISED, *PACKED))} can. Calibrate the unquantised checkpoint, and serve this "
            "one with its artifact."
        )
    return {**found, "quant_method": method}


def _options(folder: Path, found: dict[str, Any] | None, trust_remote_code: bool) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` that give a model of plain weights."""
    import transformers

    if found is None:
        return {}
    if found["quant_method"] in PACKED:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        for part in (config, config.get_text_config()):
            vars(part).pop("quantization_config", None)
        return {"config": config}
    kind = getattr(transformers, DEQUANTISED[found["quant_method"]])
    return {"quantization_config": kind.from_dict({**found, "dequantize": True})}
