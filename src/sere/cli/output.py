"""What is printed, and where: figures are never cut off, and foreign text is never taken for markup."""

from __future__ import annotations

import shlex
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

NARROWEST = 80
"""Columns that every table fits; in a narrower terminal lines wrap, but no digit is lost."""


def console() -> Console:
    """Give standard output, at least :data:`NARROWEST` columns wide."""
    found = Console(highlight=False, emoji=False)
    return found if found.width >= NARROWEST else Console(highlight=False, emoji=False, width=NARROWEST)


def plain(to: Console, text: str) -> None:
    """Print ``text`` as it is: no markup, and no line breaks inside, so that it can be copied."""
    to.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)


def titled(title: str, **settings: Any) -> Table:
    """Make a table whose title may hold anything, a path with brackets too."""
    return Table(title=Text(title), **settings)


def shell(*words: object) -> str:
    """Write a command so that a shell reads it as it was meant."""
    return shlex.join(str(word) for word in words)
