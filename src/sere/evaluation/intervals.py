"""Bootstrap intervals: how much a mean would move if other texts had been drawn."""

from __future__ import annotations

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

    """
    values = values.double().cpu()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)
    means = values[drawn].mean(1)
    tail = (1 - level) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high
