"""Critical experts: those that no other may replace at a threshold (arXiv 2602.07616)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sere.errors import ArtifactError
from sere.inspection.draws import missed
from sere.inspection.substitutes import best

Floats = NDArray[np.float64]
THRESHOLDS = (0.3, 0.5, 0.7, 0.8)
"""Thresholds that the paper reports, looked at where none is given."""


@dataclass(frozen=True)
class Critical:
    """What a threshold keeps in a layer.

    Attributes:
        threshold: Similarity that a substitute must reach.
        experts: Experts that no other expert of the layer reaches: kept whatever else is active.
        active: Experts active in the step that ``share`` is for.
        share: Expected share of the not active experts that would be kept, if ``active`` others were
            drawn at random. Real steps do not draw at random; it shows how fast the threshold bites.

    """

    threshold: float
    experts: tuple[int, ...]
    active: int
    share: float


def critical(similarity: Floats, threshold: float, active: int) -> Critical:
    """Find a layer's critical experts.

    Args:
        similarity: Shape [E, E].
        threshold: Compared in float32, as fills do.
        active: Experts of a step; at most E - 1 are taken.

    """
    experts = len(similarity)
    cutoff = float(np.float32(threshold))
    drawn = max(1, min(active, experts - 1))
    if experts == 1:
        return Critical(threshold, (0,), drawn, 1.0)
    reached = similarity >= cutoff
    np.fill_diagonal(reached, False)
    share = missed(experts - 1, drawn)[reached.sum(1)].mean()
    alone = np.flatnonzero(best(similarity) < cutoff)
    return Critical(threshold, tuple(map(int, alone)), drawn, float(share))


def check_threshold(threshold: float) -> float:
    """Return the threshold if it can be one.

    Raises:
        ArtifactError: If it is not above 0 and at most 1.

    """
    if not 0 < threshold <= 1:
        raise ArtifactError(
            f"a threshold of {threshold:g} keeps either nothing or everything. Give one above 0 and "
            "at most 1."
        )
    return threshold
