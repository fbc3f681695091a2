"""Load a model and its tokenizer for a command, with errors that a user can act on."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from sere.cli.options import Dtype
from sere.errors import DataError, EngineError

DEMO = "demo"
DTYPES: dict[Dtype, Any] = {
    "auto": "auto",
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
MOST_NAMED = 3


def resolve(model: str) -> str:
    """Return the folder or Hub name behind ``model``; ``demo`` is the bundled model.

    Raises:
        EngineError: If ``model`` looks like a path and is none.

    """
    path = Path(model)
    if model and path.is_dir():
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
    model: str, *, dtype: Dtype = "auto", device: str = "auto", trust_remote_code: bool = False
) -> tuple[Any, Any]:
    """Load ``(model, tokenizer)`` with Transformers, ready for inference.

    Raises:
        EngineError: If Transformers is missing, or the checkpoint cannot be found or loaded whole.
        DataError: If it has no tokenizer.

    """
    require_transformers()
    from transformers import AutoModelForCausalLM

    source = resolve(model)
    place = pick_device(device)
    try:
        with _quiet():
            loaded, report = AutoModelForCausalLM.from_pretrained(
                source, dtype=DTYPES[dtype], trust_remote_code=trust_remote_code, output_loading_info=True
            )
    except Exception as error:  # readers of weights and of remote code raise errors of every kind
        raise EngineError(f"{model} cannot be loaded: {first_line(error)}. {_advice(source)}") from error
    _require_whole(model, report)
    tokenizer = load_tokenizer(model, trust_remote_code=trust_remote_code)
    if source == model or model != DEMO:
        return loaded.to(place).eval(), tokenizer
    from sere.demo.model import NAME

    loaded.config._name_or_path = NAME
    return loaded.to(place).eval(), tokenizer


def load_skeleton(model: str, *, trust_remote_code: bool = False) -> Any:
    """Build a model without weights, from its config alone.

    Raises:
        EngineError: If Transformers is missing, or the config cannot be read.

    """
    require_transformers()
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(resolve(model), trust_remote_code=trust_remote_code)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except EngineError:
        raise
    except Exception as error:  # configurations and remote code raise errors of every kind
        raise EngineError(
            f"{model}: its config cannot be read as a causal language model: {first_line(error)}. "
            "Check the name or the path."
        ) from error


def load_tokenizer(model: str, *, trust_remote_code: bool = False) -> Any:
    """Load the tokenizer of a model.

    Raises:
        EngineError: If ``model`` looks like a path and is none.
        DataError: If it has no tokenizer.

    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(resolve(model), trust_remote_code=trust_remote_code)
    except EngineError:
        raise
    except Exception as error:  # remote code raises errors of every kind
        raise DataError(
            f"{model} has no usable tokenizer: {first_line(error)}. "
            "Put its tokenizer files beside the weights."
        ) from error


def _require_whole(model: str, report: dict[str, Any]) -> None:
    """Raise :class:`EngineError` if weights are missing: Transformers would fill them with random numbers."""
    missing = sorted(report.get("missing_keys", ()))
    if missing:
        named = ", ".join(missing[:MOST_NAMED]) + (", ..." if len(missing) > MOST_NAMED else "")
        raise EngineError(
            f"{model} lacks {len(missing)} of the weights of its architecture ({named}). Get the whole "
            "checkpoint: with random numbers in their place every figure would be meaningless."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Transformers' report of a failed load to itself; what matters of it is in our message."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


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
            f"--device {device} is not usable here: {first_line(error)}. Try --device cpu."
        ) from error
    if place.type == "meta":
        raise EngineError("--device meta computes nothing. Try --device cpu.")
    return place


def first_line(error: BaseException) -> str:
    """First line of an error's message, without its full stop."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _advice(source: str) -> str:
    if Path(source).is_dir():
        return "Check that the folder holds a whole causal language model."
    return "If this is a folder, check the path; if it is a Hub name, check the spelling and the network."
