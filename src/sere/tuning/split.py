"""Texts to search on, and texts that the search never sees."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from sere.demo.data import heldout_texts
from sere.errors import DataError, TuningError
from sere.evaluation.sweep import SweepConfig
from sere.evaluation.sweep.estimate import student
from sere.evaluation.sweep.shares import deal

LEAST = 2
"""Shares on each side: one shows no spread."""
MOST = 16
"""Shares that texts are dealt into, if they give so many."""


@dataclass(frozen=True)
class Split:
    """Numbers of shares, which have no text in common.

    Attributes:
        search: Those that the search measures on.
        heldout: Those that only the setting that was found is measured on.

    """

    search: tuple[int, ...]
    heldout: tuple[int, ...]

    @classmethod
    def draw(cls, shares: int, seed: int) -> Split:
        """Draw one half for the search, the rest is held out.

        Raises:
            TuningError: If there are too few shares for two halves.

        """
        if shares < 2 * LEAST:
            raise TuningError(f"{shares} shares of text are too few. Take at least {2 * LEAST}.")
        order = list(range(shares))
        random.Random(seed).shuffle(order)
        half = (shares + 1) // 2
        return cls(tuple(order[:half]), tuple(order[half:]))

    def bound(self, losses: Sequence[float]) -> float:
        """Upper bound of the mean loss that the held-out shares will show, at 95%, one-sided.

        ``mean + t s sqrt(1/n + 1/m)``: Student's prediction bound for the mean of m further shares after n,
        so both the search's chance and the held-out texts' own are allowed for.

        Args:
            losses: Loss on each share that was searched on, n of them.

        """
        if len(losses) < LEAST:
            return math.inf
        spread = math.sqrt(1 / len(losses) + 1 / len(self.heldout))
        return fmean(losses) + student(len(losses) - 1, one_sided=True) * stdev(losses) * spread


def most_shares(
    tokenizer: Any, texts: Sequence[str] | None, config: SweepConfig, batch_size: int
) -> SweepConfig:
    """Take as many shares, up to :data:`MOST`, as the texts give with each filling ``batch_size``.

    Args:
        tokenizer: The model's.
        texts: Texts to deal; None for the bundled ones.
        config: Sizes; its own number of seeds does not count.
        batch_size: The largest that is to be measured.

    Raises:
        DataError: If the texts do not even give two shares for each side.

    """
    texts = heldout_texts() if texts is None else texts
    wanted = config.sequences_for(batch_size)
    for shares in range(MOST, 2 * LEAST - 1, -1):
        dealt = deal(tokenizer, texts, shares, config.sequence_length, config.shuffle)
        if min(map(len, dealt)) >= wanted:
            return dataclasses.replace(config, seeds=shares)
    raise DataError(
        f"tuning at batch {batch_size} takes {2 * LEAST} shares of {wanted} sequences of "
        f"{config.sequence_length} tokens, and the texts do not give them. Give more text, or ask for "
        "shorter sequences or smaller batches."
    )
