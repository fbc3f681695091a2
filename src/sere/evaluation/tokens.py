"""From texts to token ids: held-out sequences of one length, and left-padded prompts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from sere.errors import DataError


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of ``text``, led by the beginning-of-text token where the tokenizer has one.

    An end-of-text token that the tokenizer appends is left out: the text is to be continued.
    """
    ids: list[int] = tokenizer(text).input_ids
    start, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    if len(ids) > 1 and end is not None and ids[-1] == end:
        ids = ids[:-1]
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
        f"{len(order)} held-out texts give {len(sequences)} sequences of {length} tokens (each text gives at "
        f"most one, its beginning), {count} were asked for. Ask for fewer or shorter ones, or give more text."
    )


def left_padded(tokenizer: Any, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad token ids at their left to one length.

    Padding is masked, so without a padding token any other will do.

    Returns:
        Ids and mask (1 for real tokens), both of shape [len(prompts), longest], int64.

    """
    width = max(map(len, prompts))
    pad = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if i is not None), 0)
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask


def check_vocabulary(model: Any, sequences: Iterable[Sequence[int]]) -> None:
    """See that the model knows all token ids.

    Raises:
        DataError: If the tokenizer gives ids that the model has no embedding for.

    """
    known = model.get_input_embeddings().weight.shape[0]
    largest = max((max(sequence, default=0) for sequence in sequences), default=0)
    if largest >= known:
        raise DataError(
            f"the tokenizer gives token id {largest}, the model has {known} embeddings: they do not belong "
            "together. Put the model's own tokenizer beside its weights."
        )


def context_length(model: Any) -> int | None:
    """Longest sequence that the model was made for, in tokens, or None where it does not say."""
    length: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return length
