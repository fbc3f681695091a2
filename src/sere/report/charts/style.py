"""Matplotlib's SVG made part of a page: its text stays text, its colours follow the page's theme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sere.errors import MissingError

INK, FAINT, PAPER = "#010203", "#010204", "#010205"
HUES = ("#020101", "#020102", "#020103", "#020104")
"""Stand-ins that :func:`_themed` turns into the page's variables."""
_VARIABLES = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    PAPER: "var(--paper)",
    **{hue: f"var(--hue-{place})" for place, hue in enumerate(HUES)},
}
WIDTH, HEIGHT = 4.6, 3.2
"""Inches; at 72 points an inch the text keeps its size on a phone."""


def require_matplotlib() -> Any:
    """Import Matplotlib, set up for files alone.

    Raises:
        MissingError: If it is not installed.

    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingError("a report needs Matplotlib. Run: pip install 'sere-moe[report]'.") from error
    return mpl, Figure


@contextmanager
def figure(width: float = WIDTH, height: float = HEIGHT) -> Iterator[tuple[Any, Any]]:
    """Give ``(figure, axes)`` in the page's style."""
    mpl, make = require_matplotlib()
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "sere",
        "font.size": 11,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": FAINT,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": FAINT,
        "grid.alpha": 0.35,
        "grid.linewidth": 0.6,
        "xtick.color": INK,
        "ytick.color": INK,
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
    }
    with mpl.rc_context(settings):
        drawn = make(figsize=(width, height))
        yield drawn, drawn.subplots()


def svg(drawn: Any, name: str, alt: str) -> str:
    """Return a figure as an SVG element.

    Args:
        drawn: Figure of :func:`figure`.
        name: Makes the element's ids the page's only ones.
        alt: Its description.

    """
    mpl, _ = require_matplotlib()
    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        drawn.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :].strip()
    # Its style would hold for the whole page; the page's own style says the same of pictures.
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'( id="|url\(#|href="#)', rf"\1{name}-", text)
    return _labelled(_themed(text), alt)


def _themed(text: str) -> str:
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return text


def _labelled(text: str, alt: str) -> str:
    """Give the element a role and a name, and let the page choose its size."""
    from markupsafe import escape

    head, rest = text.split(">", 1)
    head = re.sub(r'\s(?:width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(alt)}">{rest}'
