"""Measured results on disk: what is there is not measured again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from sere.errors import DataError
from sere.evaluation.files import check_writable
from sere.evaluation.record import Part
from sere.evaluation.sweep.point import Point

R = TypeVar("R", bound=Part)


class Cache(Generic[R]):
    """Results by key, in memory and in a file of one JSON object a line that only grows.

    A line is written whole in one call, so several processes may share the file. A last line that was cut
    off by a crash is not believed, and neither is one that no longer reads as a result.

    Args:
        kind: Class of the results.
        path: The file, made if missing; None keeps results in memory only.

    Raises:
        DataError: If the file cannot be read or its folder not be written to.

    """

    def __init__(self, kind: type[R], path: str | Path | None = None) -> None:
        self._kind = kind
        self._path = None if path is None else Path(path)
        self._results: dict[str, R] = {}
        self._read = 0
        if self._path is not None:
            check_writable(self._path.parent)
            self._catch_up()

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> R | None:
        """Return the result of ``key``, or None; what other processes have written meanwhile counts."""
        if key not in self._results:
            self._catch_up()
        return self._results.get(key)

    def put(self, key: str, result: R) -> None:
        """Keep ``result``; a key that is there already is left as it is.

        Raises:
            DataError: If it cannot be written.

        """
        if key in self:
            return
        self._results[key] = result
        if self._path is None:
            return
        # The leading line break closes a line that a crash may have left open.
        line = f'\n{{"key":{json.dumps(key)},"result":{result.model_dump_json()}}}\n'.encode()
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise DataError(
                f"cannot write {self._path}: {error.strerror}. Free the space or choose another place."
            ) from error

    def _catch_up(self) -> None:
        """Read the whole lines that are new in the file."""
        try:
            if self._path is None or not self._path.exists() or self._path.stat().st_size <= self._read:
                return
            with self._path.open("rb") as stream:
                stream.seek(self._read)
                data = stream.read()
        except OSError as error:
            raise DataError(
                f"cannot read {self._path}: {error.strerror}. Choose another place for measured results."
            ) from error
        end = data.rfind(b"\n") + 1
        self._read += end
        for line in filter(None, data[:end].split(b"\n")):
            try:
                read = json.loads(line)
                self._results.setdefault(str(read["key"]), self._kind.model_validate(read["result"]))
            except (ValueError, KeyError, TypeError, ValidationError):
                continue


class PointCache(Cache[Point]):
    """Measured points."""

    def __init__(self, path: str | Path | None = None) -> None:
        super().__init__(Point, path)
