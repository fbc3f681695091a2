"""Whether one expert stands in for most others, and whether that is only because its outputs are small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sere.inspection.spearman import spearman
from sere.inspection.substitutes import ranked

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Hub:
    """The expert that is the first substitute of most others.

    Attributes:
        expert: Its number.
        share: Share of the other experts that it is the first substitute of.
        small: Spearman's correlation of how similar an expert is to others with how small its outputs are,
            mean over all experts: near 1 the similarity only says whose outputs are small, so that a
            substitute is little more than leaving the slot out. None without output norms.

    """

    expert: int
    share: float
    small: float | None


def hub(similarity: Floats, norms: Floats | None) -> Hub | None:
    """Find the hub of a layer; None for a layer of one expert.

    Args:
        similarity: Shape [E, E].
        norms: Mean output norm of each expert, shape [E], or None.

    """
    others = len(similarity) - 1
    if not others:
        return None
    counts = np.bincount(ranked(similarity)[:, 0], minlength=others + 1)
    expert = int(counts.argmax())
    small = None if norms is None else spearman(similarity, np.broadcast_to(-norms, similarity.shape))
    return Hub(expert, float(counts[expert] / others), small)
