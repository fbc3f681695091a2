"""Load a model and its tokenizer for a command, with errors that a user can act on."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from sere.errors import DataError, EngineError

DEMO = "demo"
DTYPES = {"auto": "auto", "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve(model: str) -> str:
    """Return the folder or Hub name behind ``model``; ``demo`` is the bundled model.

    Raises:
        EngineError: If ``model`` looks like a path and is none.

    """
    path = Path(model)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise EngineError(
                f"{model} has no config.json. Give the folder that holds the checkpoint's config."
            )
        return str(path)
    if model == DEMO:
        from sere.demo.model import bundled_model

        return str(bundled_model())
    if path.exists() or model.startswith((".", "/", "~")) or model.count("/") > 1 or not model:
        raise EngineError(
            f"there is no checkpoint folder {model!r}. Check the path, or give a name on the Hub."
        )
    return model


def load(
    model: str, *, dtype: str = "auto", device: str = "auto", trust_remote_code: bool = False
) -> tuple[Any, Any]:
    """Load ``(model, tokenizer)`` with Transformers, ready for inference.

    Raises:
        EngineError: If Transformers is missing, or the checkpoint cannot be found or loaded.
        DataError: If it has no tokenizer.

    """
    require_transformers()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if dtype not in DTYPES:
        raise EngineError(f"--dtype cannot be {dtype!r}. Choose one of: {', '.join(DTYPES)}.")
    source = resolve(model)
    place = pick_device(device)
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            source, dtype=DTYPES[dtype], trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(f"{model} cannot be loaded: {_first_line(error)}. {_advice(source)}") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{model} has no usable tokenizer: {_first_line(error)}. "
            "Put its tokenizer files beside the weights."
        ) from error
    return loaded.to(place).eval(), tokenizer


def require_transformers() -> None:
    """Raise :class:`EngineError` if Transformers is not installed."""
    if importlib.util.find_spec("transformers") is None:
        raise EngineError("this needs Transformers. Run: pip install 'sere-moe[hf]'.")


def pick_device(device: str) -> torch.device:
    """Turn a ``--device`` value into a device.

    Raises:
        EngineError: If it is malformed or not there.

    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise EngineError(
            f"--device {device} is not usable here: {_first_line(error)}. Try --device cpu."
        ) from error
    return place


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _advice(source: str) -> str:
    if Path(source).is_dir():
        return "Check that the folder holds a whole causal language model."
    return "If this is a folder, check the path; if it is a Hub name, check the spelling and the network."
