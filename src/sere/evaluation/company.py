"""The same sequence in different company: what its neighbours in a batch do to its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sere.errors import DataError
from sere.evaluation.intervals import bootstrap
from sere.evaluation.record import CompanyRecord
from sere.evaluation.stepwise import ExpertCount, Rerouting, text_logits
from sere.evaluation.tokens import heldout_sequences

SEQUENCES = 64
"""Sequences that are seen in two companies, about; at least two batches."""


def pool_size(batch_size: int) -> int:
    """Sequences that :func:`company` takes: whole batches, at least two."""
    return batch_size * max(2, SEQUENCES // batch_size)


def sequences_for_company(
    tokenizer: Any, texts: Sequence[str], batch_size: int, length: int, seed: int
) -> Tensor | None:
    """Cut sequences for :func:`company`, shape [N, L]; None where the texts do not give two batches."""
    for count in dict.fromkeys((pool_size(batch_size), 2 * batch_size)):
        try:
            return heldout_sequences(tokenizer, texts, count, length, seed)
        except DataError:
            continue
    return None


def company(
    model: Any, ids: Tensor, batch_size: int, prompt: int, rerouting: Rerouting, seed: int = 0
) -> CompanyRecord:
    """Compare the predictions for the same sequences in two divisions into batches.

    In the second division a batch holds sequences of all batches of the first: with n batches, all but
    one in n of a sequence's neighbours are others. Each batch is a forward of its own, by the parallel
    proxy, so that the unmodified model shows how much the order of sums alone does.

    Args:
        model: A Transformers causal language model in evaluation mode.
        ids: Sequences, shape [N, L], int64; N is a multiple of the batch size, and at least twice it.
        batch_size: B.
        prompt: Tokens of prefill.
        rerouting: The policy, or the unmodified model.
        seed: Seed of the interval.

    Raises:
        DataError: If there are not two whole batches.

    """
    batches = len(ids) // batch_size
    if batches < 2 or len(ids) % batch_size:
        raise DataError(
            f"{len(ids)} sequences are no two or more batches of {batch_size}. Give a multiple of it."
        )
    others = torch.arange(len(ids)).view(batches, batch_size).T.flatten()
    first = _logits(model, ids, batch_size, prompt, rerouting)
    second = _logits(model, ids[others.to(ids.device)], batch_size, prompt, rerouting)
    divergence, agreement = torch.empty(len(ids)), torch.empty(len(ids))
    for place, row in enumerate(others.tolist()):
        mine, its = first[row], second[place]
        p, q = mine.float().log_softmax(-1), its.float().log_softmax(-1)
        both = torch.where((p.exp() + q.exp()) > 0, (p.exp() - q.exp()) * (p - q), 0.0).sum(-1) / 2
        divergence[row] = both.double().mean().cpu()
        agreement[row] = (mine.argmax(-1) == its.argmax(-1)).double().mean().cpu()
    return CompanyRecord(
        sequences=len(ids),
        tokens=len(ids) * first.shape[1],
        kl=float(divergence.mean()),
        kl_interval=bootstrap(divergence, seed),
        top1=float(agreement.mean()),
    )


def _logits(model: Any, ids: Tensor, batch_size: int, prompt: int, rerouting: Rerouting) -> Tensor:
    parts = [
        text_logits(model, part, prompt, rerouting, "proxy", ExpertCount())
        for part in torch.split(ids, batch_size)
    ]
    return torch.cat(parts)
