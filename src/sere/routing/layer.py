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
        routed_count: Tokens routed to both experts, and to one on the diagonal, shape [E, E], float32. This
            and all that follow are sums over those tokens alone.
        routed_norm: ``|E_p(x)|``, over tokens routed to p, shape [E], float32.
        routed_gram: ``<E_p(x), E_q(x)>``, shape [E, E], float32.
        routed_cross: ``|E_p(x)| <E_p(x), E_q(x)>``, shape [E, E], float32, not symmetric.
        routed_target: ``|E_p(x)| |E_q(x)|^2``, shape [E, E], float32, not symmetric.
        routed_source: ``|E_p(x)|^3``, shape [E, E], float32, not symmetric.
        norm_predictor: What ``log |E_p(x)|`` is predicted to be: coefficients of the layer's input x, then
            the intercept, shape [E, H + 1], float32.

    """

    similarity: Tensor | None = None
    norm: Tensor | None = None
    gram: Tensor | None = None
    routed_count: Tensor | None = None
    routed_norm: Tensor | None = None
    routed_gram: Tensor | None = None
    routed_cross: Tensor | None = None
    routed_target: Tensor | None = None
    routed_source: Tensor | None = None
    norm_predictor: Tensor | None = None
