"""On how many tokens the moments of routed tokens rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sere.artifact import Artifact


@dataclass(frozen=True)
class Routed:
    """Tokens behind a layer's moments of routed tokens.

    Attributes:
        idle: Experts that no token was routed to.
        fewest: Least tokens of an expert that is not idle, 0 if all are.
        pairs: Pairs of different experts.
        met: Those that some token was routed to both of.
        median: Median number of tokens of those, 0 if there are none.

    """

    idle: tuple[int, ...]
    fewest: int
    pairs: int
    met: int
    median: float


def routed(artifact: Artifact, name: str) -> Routed | None:
    """Count the tokens of a layer; None if the artifact has no moments of routed tokens.

    Raises:
        ArtifactError: If the layer is not there.

    """
    if "routed_count" not in artifact.manifest.fields:
        return None
    count = artifact.tensor(name, "routed_count").numpy()
    own, both = np.diag(count), count[np.triu_indices(len(count), 1)]
    met = both[both > 0]
    return Routed(
        idle=tuple(int(expert) for expert in np.flatnonzero(own == 0)),
        fewest=int(own[own > 0].min(initial=own.max())),
        pairs=len(both),
        met=len(met),
        median=float(np.median(met)) if len(met) else 0.0,
    )
