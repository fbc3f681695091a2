"""Two models on the same examples: how much they differ, and whether that could be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sere.evaluation.harness.record import Paired
from sere.evaluation.intervals import RESAMPLES
from sere.evaluation.record import Interval

Scores = tuple[Sequence[float], Sequence[float]]
"""Scores of the unmodified model and of the policy, example by example."""
_CHUNK = 100
_TAIL = 0.025


def mcnemar(lost: int, gained: int) -> float:
    """Two-sided exact p-value for ``lost`` and ``gained`` examples out of those in which two models differ.

    Source: Q. McNemar, Note on the Sampling Error of the Difference between Correlated Proportions or
    Percentages, Psychometrika 12 (1947), with the binomial in place of its normal approximation.
    """
    differing = lost + gained
    tail = sum(math.comb(differing, k) for k in range(min(lost, gained) + 1))
    return min(1.0, float(2 * tail / 2**differing))


def compare_pairs(parts: Sequence[Scores], seed: int) -> Paired:
    """Compare the means over ``parts``, each of which has the same weight.

    Args:
        parts: One or several sets of examples.
        seed: Seed of the resampling. In each round every part's examples are drawn anew by themselves, an
            example always with both its scores.

    """
    reference = sum(_mean(plain) for plain, _ in parts) / len(parts)
    value = sum(_mean(other) for _, other in parts) / len(parts)
    drawn = [
        _resampled(torch.tensor([plain, other]).double(), seed + i) for i, (plain, other) in enumerate(parts)
    ]
    means = torch.stack(drawn).mean(0)
    lost, gained, p_value = _discordant(parts)
    return Paired(
        examples=sum(len(plain) for plain, _ in parts),
        reference=reference,
        value=value,
        difference=value - reference,
        difference_interval=_ends(means[:, 1] - means[:, 0]),
        retained=value / reference if reference else None,
        retained_interval=_ends(_ratio(means)) if reference else None,
        lost=lost,
        gained=gained,
        p_value=p_value,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _discordant(parts: Sequence[Scores]) -> tuple[int | None, int | None, float | None]:
    pairs = [pair for plain, other in parts for pair in zip(plain, other, strict=True)]
    if any(score not in (0, 1) for pair in pairs for score in pair):
        return None, None, None
    lost = sum(plain > other for plain, other in pairs)
    gained = sum(plain < other for plain, other in pairs)
    return lost, gained, mcnemar(lost, gained)


def _resampled(scores: Tensor, seed: int) -> Tensor:
    """Means of examples drawn anew: scores of shape [2, N] give [RESAMPLES, 2]."""
    generator = torch.Generator().manual_seed(seed)
    count, rounds = scores.shape[1], []
    for _ in range(0, RESAMPLES, _CHUNK):
        drawn = torch.randint(count, (_CHUNK, count), generator=generator)
        rounds.append(scores[:, drawn].mean(-1).T)
    return torch.cat(rounds)


def _ratio(means: Tensor) -> Tensor:
    """Second over first; rounds in which the unmodified model solved nothing say nothing."""
    there = means[means[:, 0] != 0]
    return there[:, 1] / there[:, 0]


def _ends(values: Tensor) -> Interval:
    low, high = torch.quantile(values, torch.tensor([_TAIL, 1 - _TAIL], dtype=torch.float64)).tolist()
    return low, high
