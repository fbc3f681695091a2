"""Similarities of a batch, and their mean over batches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sere.artifact import PREDICTOR, ROUTED_FIELDS
from sere.calibration.moments import Moments
from sere.calibration.norm_predictor import ROWS, fit


def frobenius(moments: Moments) -> Tensor:
    """``1 - |X - Y|_F / max over pairs``, shape [E, E], float64; one everywhere if all are equal.

    Source: arXiv 2602.07616, similarity metrics.
    """
    apart = moments.apart.sqrt()
    largest = apart.max()
    return 1 - torch.where(largest > 0, apart / largest, 0.0)


def cosine(moments: Moments) -> Tensor:
    """Mean over tokens of the cosine of two experts' outputs, shape [E, E], float64.

    A token where an output is zero counts with cosine 0. The diagonal is one.
    """
    return (moments.normalised / moments.tokens).clamp(-1, 1).fill_diagonal_(1.0)


class BatchMeans:
    """Means over batches of a layer's statistics (Eq. 1 of the paper), summed in float64 on the CPU.

    Moments of routed tokens stay sums: how many tokens a pair of experts was seen on differs by pair.
    Rows for the norm predictor are kept until the last batch, and then give way to what is fitted to them.

    Args:
        expected: Batches in all.

    """

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._rows: list[dict[str, Tensor]] = []
        self.batches = 0
        self.sums: dict[str, Tensor] = {}

    def add(self, moments: Moments, more: Mapping[str, Tensor]) -> None:
        """Add a batch: its moments, and what else there is of it.

        Args:
            moments: Its moments.
            more: By name: CKA matrices, moments of routed tokens, and
                :data:`~sere.calibration.norm_predictor.ROWS`.

        """
        values = {
            "gram": moments.gram / moments.tokens,
            "gram_normalised": moments.normalised / moments.tokens,
            "norm": moments.norm / moments.tokens,
            "frobenius": frobenius(moments),
            **more,
        }
        self.take({name: value.cpu() for name, value in values.items()})

    def take(self, values: dict[str, Tensor]) -> None:
        """Add one batch's values, already on the CPU."""
        self.batches += 1
        rows = {name: value for name, value in values.items() if name in ROWS}
        if rows:
            self._rows.append(rows)
        for name, value in values.items():
            if name in rows:
                continue
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        if self._rows and self.batches == self._expected:
            self.sums[PREDICTOR] = fit(self._rows, self.sums["norm"] / self.batches)
            self._rows = []

    def statistics(self) -> dict[str, Tensor]:
        """Return the means by field name, float32, the sums of routed tokens and what was fitted.

        Means are exactly symmetric.
        """
        return {
            name: (total if name in (*ROUTED_FIELDS, PREDICTOR) else total / self.batches).float()
            for name, total in self.sums.items()
        }
