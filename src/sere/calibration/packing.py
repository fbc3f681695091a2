"""Turn documents into sequences of one length."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sere.errors import DataError

_GROUP = 256


def pack(texts: Sequence[str], tokenizer: Any, *, sequences: int, length: int, seed: int) -> Tensor:
    """Tokenise documents in a seeded random order, join them and cut full sequences.

    Documents are tokenised without special tokens; an end-of-text token follows each, if the
    tokenizer has one. Every sequence is full, so there is no padding. Reading stops when there is enough.

    Args:
        texts: Documents.
        tokenizer: A Transformers tokenizer.
        sequences: Sequences to make.
        length: Tokens of each.
        seed: Seed of the order of the documents.

    Returns:
        Token ids, shape [sequences, length], int64.

    Raises:
        DataError: If the texts are too short for that; the message says how far they go.

    """
    order = list(texts)
    random.Random(seed).shuffle(order)
    end = tokenizer.eos_token_id
    stream: list[int] = []
    for start in range(0, len(order), _GROUP):
        encoded = tokenizer(order[start : start + _GROUP], add_special_tokens=False, verbose=False)
        for ids in encoded["input_ids"]:
            stream += ids if end is None else [*ids, end]
        if len(stream) >= sequences * length:
            return torch.tensor(stream[: sequences * length]).view(sequences, length)
    enough = len(stream) // length
    advice = f"Lower sequences (--sequences {enough}) or the" if enough else "Lower the"
    raise DataError(
        f"the texts give {len(stream)} tokens, enough for {enough} sequences of {length}, not {sequences}. "
        f"{advice} sequence length (--sequence-length), or give more text."
    )
