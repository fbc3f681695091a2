"""A table of words, before it is known where it will be shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """Rows of cells.

    Attributes:
        title: What it shows.
        headings: One a column.
        rows: Cells; a line break in one parts what may stand below each other.
        note: How to read it.

    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """Write it as a Markdown table, without title and note."""
        lines = [self.headings, ("---",) * len(self.headings), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |" for line in lines)
