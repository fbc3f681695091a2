"""Measured points on disk: what is there is not measured again."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from sere.errors import DataError
from sere.evaluation.files import check_writable
from sere.evaluation.record import Part
from sere.evaluation.sweep.point import Point


class _Line(Part):
    key: str
    point: Point


class PointCache:
    """Points by key, in memory and in a file of one JSON object a line that only grows.

    A line is written whole in one call, so several processes may share the file. A last line that was cut
    off by a crash is not believed, and neither is one that no longer reads as a point.

    Args:
        path: The file, made if missing; None keeps points in memory only.

    Raises:
        DataError: If the file cannot be read or its folder not be written to.

    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._points: dict[str, Point] = {}
        if self._path is None:
            return
        check_writable(self._path.parent)
        try:
            lines = self._path.read_bytes().split(b"\n") if self._path.exists() else []
        except OSError as error:
            raise DataError(
                f"cannot read {self._path}: {error.strerror}. Choose another place for measured points."
            ) from error
        for line in filter(None, lines):
            try:
                read = _Line.model_validate_json(line)
            except ValidationError:
                continue
            self._points[read.key] = read.point

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, key: str) -> bool:
        return key in self._points

    def get(self, key: str) -> Point | None:
        """Return the point of ``key``, or None."""
        return self._points.get(key)

    def put(self, key: str, point: Point) -> None:
        """Keep ``point``; a key that is there already is left as it is.

        Raises:
            DataError: If it cannot be written.

        """
        if key in self._points:
            return
        self._points[key] = point
        if self._path is None:
            return
        # The leading line break closes a line that a crash may have left open.
        line = f"\n{_Line(key=key, point=point).model_dump_json()}\n".encode()
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
