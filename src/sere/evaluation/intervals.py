"""Intervals: how much a mean or a share would move if other texts or prompts had been drawn.

What is drawn again is whole sequences, or prompts; tokens of one sequence are never treated as
independent of each other. Two things the intervals leave out: sequences that were decoded in one
batch share its active experts, so they are a little less independent than assumed; and with fewer
than about ten sequences a bootstrap interval is too narrow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

RESAMPLES = 2000


def bootstrap(values: Tensor, seed: int, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of the mean of ``values``.

    Args:
        values: One value an independent unit (a sequence, an example), shape [N].
        seed: Seed of the resampling.
        level: Coverage, in (0, 1).

    Returns:
        Lower and upper end. With one unit both are its value: there is no spread to see.

    Source: B. Efron, The Jackknife, the Bootstrap and Other Resampling Plans (1982).

    """
    values = values.double().cpu()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)
    means = values[drawn].mean(1)
    tail = (1 - level) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high


def wilson(right: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Score interval of a share, which has a width even where all or none are right.

    Args:
        right: Successes.
        count: Trials, at least 1.
        level: Coverage, in (0, 1).

    Source: E. B. Wilson, Probable Inference, J. Am. Stat. Assoc. 22 (1927).

    """
    z = float(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))
    share, extra = right / count, z * z / count
    middle = (share + extra / 2) / (1 + extra)
    half = math.sqrt(share * (1 - share) * extra + extra * extra / 4) / (1 + extra)
    return max(0.0, middle - half), min(1.0, middle + half)
