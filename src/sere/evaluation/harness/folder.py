"""The folder of an evaluation: what is measured already, and that it belongs together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from sere.errors import RecordError
from sere.evaluation.files import check_writable, write_text
from sere.evaluation.harness.cell import Cell
from sere.evaluation.record import reason
from sere.provenance import Provenance

RECORD: Final = "eval.json"
PLAN: Final = "plan.json"
HARNESS: Final = "harness"
_LONGEST = 40
Key = tuple[str, str, int]
"""Task, policy, batch size."""


class Folder:
    """Measured tasks on disk, one file each, written whole.

    Args:
        path: The folder, made if missing.
        identity: Everything that all results must have in common, by name.

    Raises:
        RecordError: If the folder holds results of other settings, or a file of it is cut short.
        DataError: If it cannot be written to.

    """

    def __init__(self, path: str | Path, identity: Mapping[str, Any]) -> None:
        self.path = check_writable(path)
        own = json.loads(json.dumps(identity))
        plan = self.path / PLAN
        if plan.exists():
            self._compare(_object(plan), own)
        else:
            write_text(plan, json.dumps(own, indent=1) + "\n")
        self._cells: dict[Key, Cell] = {}
        for file in sorted((self.path / "cells").glob("*.json")):
            try:
                cell = Cell.model_validate(_object(file))
            except ValidationError as error:
                raise _damaged(file, reason(error)) from error
            self._cells[cell.task, cell.policy, cell.batch_size] = cell

    def _compare(self, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        changed = [name for name in {**there, **now} if there.get(name) != now.get(name)]
        if changed:
            said = "; ".join(f"{name}: {there.get(name)} there, {now.get(name)} now" for name in changed)
            raise RecordError(
                f"{self.path} holds an evaluation with other settings ({said}). Choose another --out, or "
                "repeat its settings to go on with it."
            )

    def get(self, task: str, policy: str, batch_size: int) -> Cell | None:
        """Give what is measured, None if it is not yet."""
        return self._cells.get((task, policy, batch_size))

    def put(self, cell: Cell, samples: str) -> None:
        """Keep a measured task and its examples, the harness's lines of JSON; the examples go first.

        Raises:
            DataError: If they cannot be written.

        """
        write_text(self.samples(cell.task, cell.policy, cell.batch_size), samples)
        name = f"{_slug(cell.task)}_{cell.batch_size}_{slug(cell.policy)}.json"
        write_text(self.path / "cells" / name, cell.model_dump_json(indent=1) + "\n")
        self._cells[cell.task, cell.policy, cell.batch_size] = cell

    def samples(self, task: str, policy: str, batch_size: int) -> Path:
        """File of a task's examples, named as the harness names it."""
        return self.variant(policy, batch_size) / f"samples_{_slug(task)}_sere.jsonl"

    def variant(self, policy: str, batch_size: int) -> Path:
        """Folder of the harness's files of one policy."""
        return self.path / HARNESS / f"{slug(policy)}_{batch_size}"

    def add_run(self, run: Provenance) -> None:
        """Keep how this run was made."""
        write_text(self.path / "runs" / f"{_slug(run.created)}.json", run.model_dump_json(indent=1) + "\n")

    def runs(self, used: set[str]) -> list[Provenance]:
        """Give the runs that measured something, the first one first.

        Raises:
            RecordError: If a file is cut short.

        """
        found = []
        for file in sorted((self.path / "runs").glob("*.json")):
            try:
                found.append(Provenance.model_validate(_object(file)))
            except ValidationError as error:
                raise _damaged(file, reason(error)) from error
        return sorted((run for run in found if run.created in used), key=lambda run: run.created)


def slug(policy: str) -> str:
    """Name of a policy in a file's name; different policies get different ones."""
    digest = hashlib.sha256(policy.encode()).hexdigest()[:6]
    return policy if re.fullmatch(r"[a-z]+", policy) else f"{_slug(policy)[:_LONGEST]}-{digest}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-")


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
