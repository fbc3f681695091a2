"""Write a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sere.errors import DataError


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 ``text`` beside ``path`` and move it there, making the folder if need be.

    What a link points to is replaced, not the link. A pipe or a device is written to directly.

    Raises:
        DataError: If ``path`` is a folder, or its folder cannot be made or written, or the disk is full.

    """
    path = Path(path).resolve()
    temporary = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_text(text, encoding="utf-8")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as stream:
            temporary = Path(stream.name)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}. Choose a place you may write to, with space left."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def check_file(path: str | Path) -> None:
    """See that a file can be written at ``path``, before hours of work.

    Raises:
        DataError: If it is a folder, or its folder cannot be written to.

    """
    path = Path(path).resolve()
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder. Name a file.")
        ordinary = path.is_file() or not path.exists()
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}. Choose another name.") from error
    if ordinary:
        check_writable(path.parent)


def check_writable(folder: str | Path) -> Path:
    """Make ``folder`` and see that files can be written in it, before hours of work.

    Raises:
        DataError: If they cannot.

    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise DataError(f"cannot write into {folder}: {error.strerror}. Choose another output.") from error
