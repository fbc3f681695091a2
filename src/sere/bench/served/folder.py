"""The folder of a served benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sere.bench.served.record import Cell
from sere.bench.store import Store, slug


class Folder(Store[Cell]):
    """Measured loads on disk, see :class:`~sere.bench.store.Store`.

    Args:
        path: The folder, made if missing.
        identity: Everything that all loads must have in common, by name.

    """

    def __init__(self, path: str | Path, identity: Mapping[str, Any]) -> None:
        super().__init__(path, identity, Cell, "cells")

    def get(self, variant: str, rate: float, repetition: int) -> Cell | None:
        """Give what is measured, None if it is not yet."""
        return self.kept.get(stem(variant, rate, repetition))

    def put(self, cell: Cell) -> None:
        """Keep a measured load; one that is there already is left as it is.

        Raises:
            DataError: If it cannot be written.

        """
        self.keep(stem(cell.variant, cell.rate, cell.repetition), cell)


def stem(variant: str, rate: float, repetition: int) -> str:
    """Name of a load's files."""
    return f"{slug(variant)}_{rate:g}_{repetition}"
