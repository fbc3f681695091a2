"""Text to count distinct experts on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from sere.demo.data import heldout_texts
from sere.evaluation.tokens import check_vocabulary, heldout_sequences
from sere.profiling.config import ProfileConfig


def sequences(model: Any, tokenizer: Any, texts: Sequence[str] | None, config: ProfileConfig) -> Tensor:
    """Cut one sequence for each row of the largest batch, shape [N, L], int64.

    Args:
        model: The model, for its vocabulary.
        tokenizer: Its tokenizer.
        texts: Texts; None for the bundled held-out ones.
        config: Sizes.

    Raises:
        DataError: If there is too little text, or the tokenizer is not the model's.

    """
    ids = heldout_sequences(
        tokenizer,
        heldout_texts() if texts is None else texts,
        config.batch_sizes[-1],
        config.prompt_tokens + config.expected_tokens,
        config.seed,
    )
    check_vocabulary(model, ids.tolist())
    return ids
