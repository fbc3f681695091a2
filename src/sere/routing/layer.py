"""What a policy may know about a layer beyond the step's own routing."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LayerStatistics:
    """Calibrated statistics of one MoE layer, on the device where the policy runs.

    Attributes:
        similarity: Likeness of every pair of experts, shape [E, E], float32; row u holds the
            substitutes of u, greater is more alike, the diagonal is ignored. None where a policy
            needs none.
        norm: Mean length of every expert's output, shape [E], float32.
        gram: Mean over tokens of ``<E_p(x), E_q(x)>``, shape [E, E], float32.

    """

    similarity: Tensor | None = None
    norm: Tensor | None = None
    gram: Tensor | None = None
