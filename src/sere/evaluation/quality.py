"""The quality of a model by itself, for its card: far enough from chance to show a loss, or not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sere.calibration import load_texts
from sere.demo.data import heldout_texts
from sere.errors import DataError
from sere.evaluation.exact_match import bundled_examples, solve
from sere.evaluation.tokens import encode


def model_report(
    model: Any,
    tokenizer: Any,
    *,
    batch_size: int = 16,
    examples_per_task: int = 100,
    baseline_texts: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Measure exact match per task and the language-model loss beside a unigram baseline.

    Args:
        model: The unmodified model, in evaluation mode.
        tokenizer: Its tokenizer.
        batch_size: Live sequences of the greedy decoding, and texts of a loss batch.
        examples_per_task: Held-out examples of each task.
        baseline_texts: Texts that the unigram counts come from; None for the calibration sample.
        texts: Held-out texts; None for the bundled ones.

    Returns:
        ``tasks`` (task to share of right answers), ``exact_match`` over all, ``text_loss`` and
        ``unigram_loss`` (nats per token), ``perplexity``, ``bits_per_byte``, ``tokens``, ``bytes``.

    """
    solved = solve(model, tokenizer, bundled_examples(examples_per_task), batch_size)
    texts = heldout_texts() if texts is None else texts
    rows = [encode(tokenizer, text) for text in texts]
    # The first token is given, be it a beginning-of-text token or the text's own.
    tokens = sum(len(row) - 1 for row in rows)
    if not tokens:
        raise DataError("the held-out texts hold no token to predict. Give longer texts.")
    loss = sum(_losses(model, rows[i : i + batch_size]) for i in range(0, len(rows), batch_size))
    size = sum(len(text.encode()) for text in texts)
    baseline = load_texts(baseline_texts) if baseline_texts is not None else load_texts()
    counts = Counter(token for text in baseline for token in encode(tokenizer, text)[1:])
    return {
        "tasks": solved.by_task(),
        "exact_match": solved.share(),
        "examples_per_task": examples_per_task,
        "text_loss": loss / tokens,
        "perplexity": math.exp(loss / tokens),
        "unigram_loss": _unigram(counts, rows, model.config.get_text_config().vocab_size) / tokens,
        "bits_per_byte": loss / math.log(2) / size,
        "tokens": tokens,
        "bytes": size,
    }


def _losses(model: Any, rows: list[list[int]]) -> float:
    """Sum the negative log-likelihood of all tokens but each text's first, nats."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=model.device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=model.device)
    with torch.inference_mode():
        logits: Tensor = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
    picked = logits.float().log_softmax(-1).gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return float(-(picked.double() * mask[:, 1:]).sum())


def _unigram(counts: Counter[int], rows: list[list[int]], vocabulary: int) -> float:
    """Sum the loss of a model that knows only how often each token occurs (add-one smoothing)."""
    total = sum(counts.values()) + vocabulary
    return -sum(math.log((counts[token] + 1) / total) for row in rows for token in row[1:])
