"""From texts to token ids: held-out sequences of one length, and left-padded prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sere.errors import DataError


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of ``text``, led by the beginning-of-text token where the tokenizer has one."""
    ids: list[int] = tokenizer(text).input_ids
    start = tokenizer.bos_token_id
    return ids if start is None or ids[:1] == [start] else [start, *ids]


def heldout_sequences(tokenizer: Any, texts: Sequence[str], count: int, length: int, seed: int) -> Tensor:
    """Cut ``count`` sequences of ``length`` tokens out of ``texts``.

    The texts are shuffled under ``seed``; each gives at most one sequence, its beginning, so that
    no two sequences overlap. Texts that are too short are joined with those after them.

    Returns:
        Token ids, shape [count, length], int64.

    Raises:
        DataError: If there is no text, or too little for ``count`` sequences.

    """
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise DataError("there is no held-out text. Give a file with at least one text in it.")
    order = list(texts)
    random.Random(seed).shuffle(order)
    sequences: list[list[int]] = []
    current: list[int] = []
    for text in order:
        current = current + encode(tokenizer, text)
        if len(current) >= length:
            sequences.append(current[:length])
            current = []
        if len(sequences) == count:
            return torch.tensor(sequences)
    raise DataError(
        f"the held-out text gives {len(sequences)} sequences of {length} tokens, {count} were asked for. "
        "Ask for fewer or shorter ones, or give more text."
    )


def left_padded(tokenizer: Any, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad token ids at their left to one length.

    Returns:
        Ids and mask (1 for real tokens), both of shape [len(prompts), longest], int64.

    """
    width = max(map(len, prompts))
    pad = tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask


def require_padding(tokenizer: Any) -> None:
    """Raise a :class:`DataError` if the tokenizer cannot pad or cannot end a text."""
    if tokenizer.pad_token_id is None:
        raise DataError(
            "the tokenizer has no padding token, so prompts of several lengths cannot share a batch. "
            "Set tokenizer.pad_token, for example to tokenizer.eos_token."
        )
    if tokenizer.eos_token_id is None:
        raise DataError("the tokenizer has no end-of-text token. Set tokenizer.eos_token.")


def context_length(model: Any) -> int | None:
    """Longest sequence that the model was made for, in tokens, or None where it does not say."""
    length: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return length
