"""What a section of the page is put together from; the template knows how each looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes:
        text: Plain text.
        tone: ``note`` for what a reader must not miss.

    """

    text: str
    tone: Literal["plain", "note"] = "plain"
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    items: Sequence[str]
    kind: Literal["points"] = "points"


@dataclass(frozen=True)
class Table:
    """A table with column headers, and a row header in the first column.

    Attributes:
        caption: What it shows.
        columns: Headings.
        rows: Cells as text; the first is the row's header.
        note: Explanation below.
        code: Whether the first column is code, as policies are.
        prose: Whether cells hold sentences, which wrap; figures do not.

    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    code: bool = False
    prose: bool = False
    kind: Literal["table"] = "table"


@dataclass(frozen=True)
class Chart:
    """A picture with its words and its figures.

    Attributes:
        svg: SVG element, see :mod:`sere.report.charts.style`.
        alt: What it shows, for who does not see it.
        caption: Text below.
        table: The same figures; None where the page has them elsewhere.

    """

    svg: str
    alt: str
    caption: str
    table: Table | None = None
    kind: Literal["chart"] = "chart"


@dataclass(frozen=True)
class Code:
    """Text to copy, with what it is for."""

    title: str
    text: str
    kind: Literal["code"] = "code"


@dataclass(frozen=True)
class Charts:
    """Pictures that stand side by side where there is room."""

    charts: Sequence[Chart]
    kind: Literal["charts"] = "charts"


Block = Text | Points | Table | Chart | Charts | Code


@dataclass
class Section:
    """A part of the page under a heading of its own.

    Attributes:
        id: Anchor.
        title: Heading.
        blocks: What stands in it.

    """

    id: str
    title: str
    blocks: list[Block] = field(default_factory=list)
