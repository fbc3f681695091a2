"""Held-out text of the bundled model: neither trained on nor calibrated with.

Prose of the Python documentation (Python Software Foundation License 2) and of the King James
Bible (public domain), one document a block, blocks separated by a blank line.
"""

from __future__ import annotations

from importlib.resources import files


def heldout_texts() -> list[str]:
    """Return the documents, about 600 characters each."""
    text = (files("sere.demo") / "heldout.txt").read_text(encoding="utf-8")
    return [block for block in text.split("\n\n") if block.strip()]
