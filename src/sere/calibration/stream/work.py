"""The work folder of a streamed calibration: what is finished survives a kill at any moment."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock

from sere.calibration.stream import packed
from sere.errors import CalibrationError, DataError
from sere.evaluation.files import write_text

_STATE = "state.json"


def folder_for(out: Path) -> Path:
    """Work folder of an output folder: hidden, beside it."""
    out = out.resolve()
    return out.with_name(f".{out.name}.calibration")


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold an output for one run; the operating system lets go of it when the process ends, however it ends.

    Raises:
        CalibrationError: If another run holds it.

    """
    folder = folder_for(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / "lock", timeout=0)
        lock.acquire()
    except filelock.Timeout as error:
        raise CalibrationError(
            f"another calibration is writing to {out} at this moment. Wait for it, or choose another --out."
        ) from error
    except OSError as error:
        raise DataError(f"cannot write into {folder}: {error.strerror}. Choose another output.") from error
    try:
        yield
    finally:
        if not (folder / _STATE).exists():
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()


class Work:
    """State of a run: which layers are finished, their statistics, and the last one's outputs by batch.

    Args:
        folder: Where to keep it; made if need be.
        settings: Everything the result depends on; a run with others cannot be resumed.

    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.settings = json.loads(json.dumps(settings))
        text = json.dumps(self.settings, sort_keys=True)
        self.hash = hashlib.sha256(text.encode()).hexdigest()

    def resume(self) -> int:
        """Return the number of finished layers, 0 for a new run.

        Raises:
            CalibrationError: If the folder holds the work of a run with other settings.

        """
        try:
            state = json.loads((self.folder / _STATE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise CalibrationError(
                f"{self.folder / _STATE} is damaged. Add --restart to begin anew."
            ) from error
        if state["hash"] != self.hash:
            old = state["settings"]
            keys = [key for key in {**old, **self.settings} if old.get(key) != self.settings.get(key)]
            raise CalibrationError(
                f"{self.folder} holds an unfinished calibration with another {', '.join(keys)}. Repeat its "
                "settings to go on with it, or add --restart to throw it away."
            )
        return int(state["layers"])

    def digests(self) -> dict[str, str]:
        """Hashes of what the first unfinished layer was called with, by batch."""
        state = json.loads((self.folder / _STATE).read_text(encoding="utf-8"))
        return dict(state["digests"])

    def output(self, layer: int, batch: int) -> Path:
        """File of a layer's output for a batch."""
        return self.folder / f"output-{layer:04d}-{batch:06d}.safetensors"

    def statistics(self, layer: int) -> Path:
        """File of a layer's statistics."""
        return self.folder / f"statistics-{layer:04d}.safetensors"

    def finish(self, layer: int, statistics: Mapping[str, Any], digests: Mapping[str, str]) -> None:
        """Say that a layer is finished, once its statistics are written, and drop what only it needed.

        Raises:
            CalibrationError: If the disk is full.

        """
        packed.write(self.statistics(layer), dict(statistics))
        state = {
            "layers": layer + 1,
            "hash": self.hash,
            "digests": dict(digests),
            "settings": self.settings,
        }
        try:
            write_text(self.folder / _STATE, json.dumps(state, indent=1))
        except DataError as error:
            raise CalibrationError(
                f"{str(error).split('. ')[0]}. Free space, then run the same command again: the layers that "
                "are finished are kept."
            ) from error
        for path in self.folder.glob("output-*"):
            if not path.name.startswith(f"output-{layer:04d}-"):
                path.unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Throw away everything in a work folder but the lock."""
    (folder / _STATE).unlink(missing_ok=True)
    for path in folder.glob("*.safetensors*"):
        path.unlink(missing_ok=True)
