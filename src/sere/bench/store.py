"""The folder of a benchmark: what is measured already, one file each, and that it belongs together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from sere.errors import RecordError
from sere.evaluation.files import check_writable, write_text
from sere.evaluation.record import reason
from sere.provenance import Provenance

RECORD: Final = "bench.json"
PLAN: Final = "plan.json"
_LONGEST = 40

Kept = TypeVar("Kept", bound=BaseModel)


class Store(Generic[Kept]):
    """Measurements on disk, written whole.

    Args:
        path: The folder, made if missing.
        identity: Everything that all measurements must have in common, by name.
        kind: What a measurement is read as.
        inside: Folder of the measurements, within ``path``.

    Raises:
        RecordError: If the folder holds measurements of other settings, or a file of it is cut short.
        DataError: If it cannot be written to.

    """

    def __init__(self, path: str | Path, identity: Mapping[str, Any], kind: type[Kept], inside: str) -> None:
        self.path, self._inside = Path(path), inside
        check_writable(self.path)
        own = json.loads(json.dumps(identity))
        plan = self.path / PLAN
        if plan.exists():
            self._compare(_object(plan), own)
        else:
            write_text(plan, json.dumps(own, indent=1) + "\n")
        self.kept = {file.stem: read_part(file, kind) for file in sorted((self.path / inside).glob("*.json"))}

    def _compare(self, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        changed = [name for name in {**there, **now} if there.get(name) != now.get(name)]
        if changed:
            said = "; ".join(f"{name}: {there.get(name)} there, {now.get(name)} now" for name in changed)
            raise RecordError(
                f"{self.path} holds a benchmark with other settings ({said}). Choose another --out, or "
                "repeat its settings to go on with it."
            )

    def keep(self, name: str, measured: Kept) -> None:
        """Keep a measurement under ``name``; one that is there already is left as it is.

        Raises:
            DataError: If it cannot be written.

        """
        if name not in self.kept:
            file = self.path / self._inside / f"{name}.json"
            write_text(file, measured.model_dump_json(indent=1) + "\n")
            self.kept[name] = measured

    def add_run(self, run: Provenance) -> None:
        """Keep how this run was made."""
        write_text(self.path / "runs" / f"{plain(run.created)}.json", run.model_dump_json(indent=1) + "\n")

    def runs(self, used: set[str]) -> list[Provenance]:
        """Give the runs that measured something, the first one first.

        Raises:
            RecordError: If a file is cut short.

        """
        files = sorted((self.path / "runs").glob("*.json"))
        found = [read_part(file, Provenance) for file in files]
        return sorted((run for run in found if run.created in used), key=lambda run: run.created)


def slug(variant: str) -> str:
    """Name of a variant in a file's name; different variants get different ones."""
    digest = hashlib.sha256(variant.encode()).hexdigest()[:6]
    return variant if re.fullmatch(r"[a-z]+", variant) else f"{plain(variant)[:_LONGEST]}-{digest}"


def plain(text: str) -> str:
    """Turn ``text`` into what any file system takes."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def read_part(path: Path, kind: type[Kept]) -> Kept:
    """Read one file of a benchmark.

    Raises:
        RecordError: If it cannot be read, is cut short, or is something else.

    """
    try:
        return kind.model_validate(_object(path))
    except ValidationError as error:
        raise _damaged(path, reason(error)) from error


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}. Mend its permissions.") from error
    except ValueError as error:
        raise _damaged(path, "no JSON") from error
    if not isinstance(value, dict):
        raise _damaged(path, "no JSON object")
    return value


def _damaged(path: Path, what: str) -> RecordError:
    return RecordError(f"{path} is cut short or damaged ({what}). Delete it, and run the command again.")
