"""The safetensors files of a checkpoint folder, checked before hours of work and read tensor by tensor."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from sere.errors import CalibrationError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}


class Shards:
    """Where each tensor of a checkpoint lies.

    Attributes:
        folder: The checkpoint's folder.
        files: Its weight files, in the order of their names.
        where: File by tensor name.
        sizes: Bytes on disk by tensor name.

    Raises:
        CalibrationError: If the index cannot be read, or a file is missing, truncated, or lacks tensors
            that the index promises.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where: dict[str, Path] = {}
        self.sizes: dict[str, int] = {}
        promised = _promised(folder)
        self.files = sorted(folder / name for name in promised)
        for path in self.files:
            with _opened(path, mapped=True) as file:
                names = file.keys()
                held = {name: _size(file.get_slice(name)) for name in names}
            lost = sorted(promised[path.name] - set(held))
            if lost:
                raise CalibrationError(
                    f"{path} lacks {len(lost)} of the tensors that {INDEX} says it holds ({lost[0]}). "
                    "Copy the file again, together with its index."
                )
            self.sizes.update(held)
            self.where.update(dict.fromkeys(held, path))

    @property
    def names(self) -> list[str]:
        """Tensor names."""
        return list(self.where)

    @contextlib.contextmanager
    def slices(self, names: Iterable[str], *, mapped: bool) -> Iterator[dict[str, Any]]:
        """Give lazy tensors by name, each read when it is indexed; files close at the end of the block.

        Args:
            names: Tensor names.
            mapped: Map them, as Transformers does, so that they are aligned as in a model that was loaded
                whole: kernels may round otherwise where data are aligned otherwise. If not, read them, which
                leaves no pages behind.

        """
        with contextlib.ExitStack() as stack:
            files: dict[Path, Any] = {}
            found = {}
            for name in names:
                path = self.where[name]
                if path not in files:
                    files[path] = stack.enter_context(_opened(path, mapped))
                found[name] = files[path].get_slice(name)
            yield found

    def identity(self) -> dict[str, Any]:
        """Names, sizes and times of the files: what tells one checkpoint from another."""
        stats = {path.name: path.stat() for path in self.files}
        return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def can_stream(folder: Path) -> bool:
    """Whether ``folder`` holds weights in safetensors files."""
    return (folder / SINGLE).exists() or (folder / INDEX).exists()


def _promised(folder: Path) -> Mapping[str, set[str]]:
    """Tensor names by file name; for a single file nothing is promised."""
    if (folder / SINGLE).exists():
        return {SINGLE: set()}
    index = folder / INDEX
    try:
        where = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        promised: dict[str, set[str]] = {}
        for tensor, file in where.items():
            promised.setdefault(Path(file).name, set()).add(tensor)
    except FileNotFoundError as error:
        raise CalibrationError(
            f"{folder} holds neither {SINGLE} nor {INDEX}, so it cannot be streamed. Add --in-memory, or "
            "save the model with safetensors."
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CalibrationError(
            f"{index} cannot be read: it is no index of safetensors files. Copy it again."
        ) from error
    if not promised:
        raise CalibrationError(f"{index} names no weights. Copy it again.")
    missing = sorted(name for name in promised if not (folder / name).exists())
    if missing:
        raise CalibrationError(
            f"{folder} lacks {len(missing)} of {len(promised)} weight files ({missing[0]}). Copy "
            "what is missing."
        )
    return promised


@contextlib.contextmanager
def _opened(path: Path, mapped: bool) -> Iterator[Any]:
    try:
        file = _open(path, mapped and sys.platform != "win32")
    except (SafetensorError, OSError) as error:
        raise CalibrationError(
            f"{path} is truncated, damaged or unreadable ({error}). Copy it again."
        ) from error
    with file as held:
        yield held


def _open(path: Path, mapped: bool) -> Any:
    try:
        return safe_open(path, framework="pt", backend="mmap" if mapped else "pread")
    except TypeError:  # an older safetensors
        return safe_open(path, framework="pt")


def _size(tensor: Any) -> int:
    count = 1
    for length in tensor.get_shape():
        count *= length
    return count * _BYTES.get(tensor.get_dtype(), 1)
