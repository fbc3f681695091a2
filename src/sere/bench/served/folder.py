"""The folder of a served benchmark: what is measured already, and that it belongs together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from sere.bench.served.record import Cell
from sere.errors import RecordError
from sere.evaluation.files import check_writable, write_text
from sere.evaluation.record import reason
from sere.provenance import Provenance

RECORD: Final = "bench.json"
PLAN: Final = "plan.json"
_LONGEST = 40


class Folder:
    """Measured loads on disk, one file each, written whole.

    Args:
        path: The folder, made if missing.
        identity: Everything that all loads must have in common, by name.

    Raises:
        RecordError: If the folder holds loads of other settings, or a file of it is cut short.
        DataError: If it cannot be written to.

    """

    def __init__(self, path: str | Path, identity: Mapping[str, Any]) -> None:
        self.path = Path(path)
        check_writable(self.path)
        own = json.loads(json.dumps(identity))
        plan = self.path / PLAN
        if plan.exists():
            self._compare(_object(plan), own)
        else:
            write_text(plan, json.dumps(own, indent=1) + "\n")
        self._cells = {key_of(cell): cell for cell in self._read()}

    def _compare(self, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        changed = [name for name in {**there, **now} if there.get(name) != now.get(name)]
        if changed:
            said = "; ".join(f"{name}: {there.get(name)} there, {now.get(name)} now" for name in changed)
            raise RecordError(
                f"{self.path} holds a benchmark with other settings ({said}). Choose another --out, or "
                "repeat its settings to go on with it."
            )

    def _read(self) -> Iterator[Cell]:
        for path in sorted((self.path / "cells").glob("*.json")):
            try:
                yield Cell.model_validate(_object(path))
            except ValidationError as error:
                raise _damaged(path, reason(error)) from error

    def get(self, variant: str, rate: float, repetition: int) -> Cell | None:
        """Give what is measured, None if it is not yet."""
        return self._cells.get((variant, rate, repetition))

    def put(self, cell: Cell) -> None:
        """Keep a measured load; one that is there already is left as it is.

        Raises:
            DataError: If it cannot be written.

        """
        if key_of(cell) not in self._cells:
            name = stem(cell.variant, cell.rate, cell.repetition)
            write_text(self.path / "cells" / f"{name}.json", cell.model_dump_json(indent=1) + "\n")
            self._cells[key_of(cell)] = cell

    def add_run(self, run: Provenance) -> None:
        """Keep how this run was made."""
        write_text(self.path / "runs" / f"{_slug(run.created)}.json", run.model_dump_json(indent=1) + "\n")

    def runs(self, used: set[str]) -> list[Provenance]:
        """Give the runs that measured something, the first one first.

        Raises:
            RecordError: If a file is cut short.

        """
        found = []
        for path in sorted((self.path / "runs").glob("*.json")):
            try:
                found.append(Provenance.model_validate(_object(path)))
            except ValidationError as error:
                raise _damaged(path, reason(error)) from error
        return sorted((run for run in found if run.created in used), key=lambda run: run.created)


def key_of(cell: Cell) -> tuple[str, float, int]:
    """Return what tells a load from others of its benchmark."""
    return cell.variant, cell.rate, cell.repetition


def stem(variant: str, rate: float, repetition: int) -> str:
    """Name of a load's files."""
    return f"{slug(variant)}_{rate:g}_{repetition}"


def slug(variant: str) -> str:
    """Name of a variant in a file's name; different variants get different ones."""
    digest = hashlib.sha256(variant.encode()).hexdigest()[:6]
    return variant if re.fullmatch(r"[a-z]+", variant) else f"{_slug(variant)[:_LONGEST]}-{digest}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


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
