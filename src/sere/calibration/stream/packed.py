"""Nested results as tensors in a safetensors file and a description, and back."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sere.errors import CalibrationError

_PLAIN = (bool, int, float, str, type(None))


def write(path: Path, value: Any) -> None:
    """Write tensors in any nesting of lists, tuples and dictionaries, whole or not at all.

    Raises:
        CalibrationError: If something else is among them, or the disk is full.

    """
    tensors: list[Tensor] = []
    shape = _described(value, tensors)
    held = {str(place): tensor.detach().cpu().contiguous() for place, tensor in enumerate(tensors)}
    temporary = path.with_name(path.name + ".tmp")
    try:
        safetensors.torch.save_file(_unshared(held), temporary, metadata={"shape": json.dumps(shape)})
        os.replace(temporary, path)  # noqa: PTH105 - one name for a rename
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise CalibrationError(
            f"cannot write {path}: {_reason(error)}. Free space, then run the same command again: the layers "
            "that are finished are kept."
        ) from error


def read(path: Path, device: torch.device | str = "cpu") -> Any:
    """Read what :func:`write` wrote; on the CPU tensors are mapped, not read, until they are used.

    Raises:
        CalibrationError: If it is missing or damaged.

    """
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            return _rebuilt(json.loads(file.metadata()["shape"]), file)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CalibrationError(f"{path} is missing or damaged. Add --restart to begin anew.") from error


def digest(value: Any) -> str:
    """Hash of nested values; things that are neither tensors nor plain count by their type."""
    found = hashlib.sha256()
    _feed(value, found.update)
    return found.hexdigest()


def size(value: Any) -> int:
    """Bytes of all tensors in nested values, each storage once."""
    storages: dict[int, int] = {}

    def visit(each: Any) -> None:
        if isinstance(each, Tensor):
            storages[each.data_ptr()] = each.nbytes
        elif isinstance(each, dict):
            for one in each.values():
                visit(one)
        elif isinstance(each, (list, tuple)):
            for one in each:
                visit(one)

    visit(value)
    return sum(storages.values())


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error).rstrip(".")


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return result


def _described(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return ["tensor", len(tensors) - 1]
    if isinstance(value, _PLAIN):
        return ["plain", value]
    if type(value) in (list, tuple):
        return [type(value).__name__, [_described(each, tensors) for each in value]]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return ["dict", {key: _described(each, tensors) for key, each in value.items()}]
    raise CalibrationError(
        f"a decoder layer gives a {type(value).__name__}, so this model cannot be streamed. Add --in-memory."
    )


def _rebuilt(shape: Any, file: Any) -> Any:
    kind, content = shape
    if kind == "tensor":
        return file.get_tensor(str(content))
    if kind == "dict":
        return {key: _rebuilt(each, file) for key, each in content.items()}
    if kind in ("list", "tuple"):
        parts = [_rebuilt(each, file) for each in content]
        return tuple(parts) if kind == "tuple" else parts
    return content


def _feed(value: Any, update: Any) -> None:
    if isinstance(value, Tensor):
        update(f"{value.dtype}{tuple(value.shape)}".encode())
        update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, dict):
        for key, each in value.items():
            update(str(key).encode())
            _feed(each, update)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _feed(each, update)
    else:
        update(repr(value).encode() if isinstance(value, _PLAIN) else type(value).__name__.encode())
