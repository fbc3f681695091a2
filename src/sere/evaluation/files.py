"""Write a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sere.errors import DataError


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 ``text`` beside ``path`` and move it there, making the folder if need be.

    Raises:
        DataError: If the folder cannot be made or written, or the disk is full.

    """
    path = Path(path)
    temporary = None
    try:
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
            f"cannot write {path}: {error.strerror}. Choose a folder you may write to, with space left."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


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
        raise DataError(
            f"cannot write into {folder}: {error.strerror}. Choose another output folder."
        ) from error
