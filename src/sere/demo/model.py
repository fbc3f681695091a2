"""The bundled model: a small mixture-of-experts model that was really trained."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from sere.errors import EngineError

WEIGHTS = "model.safetensors"
NAME = "sere-demo-moe"
"""Name of the bundled model in records; the folder it lies in differs from machine to machine."""


def bundled_model() -> Path:
    """Folder of the bundled checkpoint: config, weights, tokenizer, card.

    Raises:
        EngineError: If this installation has none.

    """
    folder = Path(str(files("sere.demo") / "model"))
    if not (folder / WEIGHTS).is_file():
        raise EngineError(
            f"the bundled model is not in this installation ({folder / WEIGHTS} is missing). Install the "
            "sere-moe wheel again, or train it with tools/demo_model."
        )
    return folder


def load(folder: Path | None = None) -> tuple[Any, Any]:
    """Load the bundled model in float32, ready for inference, and its tokenizer.

    Float32, because the CPU's bfloat16 products differ between machines more than policies do.

    Args:
        folder: Another checkpoint of the same kind; None for the bundled one.

    Raises:
        EngineError: If it is not there.

    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = folder or bundled_model()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config._name_or_path = NAME
    return model.eval(), AutoTokenizer.from_pretrained(folder)
