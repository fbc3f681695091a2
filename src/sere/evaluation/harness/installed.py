"""The harness: is it there, and can it work without filling the screen."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sere.errors import MissingError

LEAST = (0, 4, 13)
_LOGGERS = ("lm_eval", "lm-eval", "datasets", "evaluate", "transformers")


def require_harness() -> None:
    """See that a harness of a known form is installed.

    Raises:
        MissingError: If there is none, or an older one.

    """
    how = "Run: pip install 'sere-moe[eval]'."
    if importlib.util.find_spec("lm_eval") is None:
        raise MissingError(f"this needs lm-evaluation-harness. {how}")
    found = importlib.metadata.version("lm_eval")
    if tuple(int(part) for part in found.split(".")[:3] if part.isdigit()) < LEAST:
        least = ".".join(map(str, LEAST))
        raise MissingError(f"lm-evaluation-harness is {found}, this needs {least} or newer. {how}")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the harness's progress bars and remarks off the screen; what matters of them, we say."""
    import tqdm.std

    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    shown = tqdm.std.tqdm.__init__

    def hidden(bar: Any, *given: Any, **settings: Any) -> None:
        shown(bar, *given, **{**settings, "disable": True})

    tqdm.std.tqdm.__init__ = hidden
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        tqdm.std.tqdm.__init__ = shown
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
