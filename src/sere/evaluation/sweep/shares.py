"""Held-out texts dealt into disjoint shares of sequences, one share a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sere.errors import DataError
from sere.evaluation.tokens import encode


def deal(tokenizer: Any, texts: Sequence[str], shares: int, length: int, shuffle: int) -> list[Tensor]:
    """Deal shuffled texts into ``shares`` and cut each share into sequences.

    Texts of a share are joined and cut every ``length`` tokens; a sequence that begins inside of a text
    is led by the beginning-of-text token, where the tokenizer has one. No token lies in two sequences.

    Args:
        tokenizer: The model's.
        texts: Held-out texts.
        shares: Number of shares.
        length: L, tokens of a sequence.
        shuffle: Seed of the order of the texts.

    Returns:
        For every share its sequences, shape [n, L], int64; n differs between shares, and may be 0.

    Raises:
        DataError: If there is no text.

    """
    order = [text for text in texts if text.strip()]
    if not order:
        raise DataError("there is no held-out text. Give a file with at least one text in it.")
    random.Random(shuffle).shuffle(order)
    return [_cut(tokenizer, order[share::shares], length) for share in range(shares)]


def _cut(tokenizer: Any, texts: Sequence[str], length: int) -> Tensor:
    start = tokenizer.bos_token_id
    stream = [token for text in texts for token in encode(tokenizer, text)]
    rows, at = [], 0
    while at < len(stream):
        lead = [] if start is None or stream[at] == start else [start]
        row = lead + stream[at : at + length - len(lead)]
        at += length - len(lead)
        if len(row) == length:
            rows.append(row)
    return torch.tensor(rows, dtype=torch.long).view(-1, length)


def take(shares: Sequence[Tensor], seed: int, count: int) -> Tensor:
    """Return the first ``count`` sequences of a seed's share, shape [count, L].

    Raises:
        DataError: If there is no such seed, or the share is too small.

    """
    if not 0 <= seed < len(shares):
        raise DataError(f"there is no seed {seed}; the texts were dealt for seeds 0 to {len(shares) - 1}.")
    share = shares[seed]
    if len(share) < count:
        raise DataError(
            f"{count} sequences of {share.shape[1]} tokens are wanted of seed {seed}, and its share of the "
            f"held-out texts gives {len(share)}. Give more text, or ask for fewer seeds, shorter sequences "
            "or smaller batches."
        )
    return share[:count]
