"""Sequences for a model that knows no text."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

SPECIAL = 3
"""Ids below this are the stand-in's special tokens."""


def random_sequences(model: str | Path, size: int, length: int, seed: int) -> Tensor:
    """Draw token ids uniformly from the vocabulary of the checkpoint in ``model``.

    Returns:
        Token ids, shape [size, length], int64.

    """
    vocabulary = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(SPECIAL, vocabulary, (size, length), generator=generator)
