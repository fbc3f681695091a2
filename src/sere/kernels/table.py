"""What a fused kernel needs of a policy and a layer: a few numbers, and a table made once at load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from sere.errors import PolicyError, RoutingError
from sere.routing import LayerStatistics, Policy
from sere.routing.fill import MostSimilar
from sere.routing.select import UnionTopS
from sere.routing.weigh import Keep

STRIDE: Final = 32
"""Rows of the order are padded to a multiple of this many entries, so that a load is never cut."""


@dataclass(frozen=True)
class Options:
    """SERE's parameters, as :func:`sere.routing.recipes.sere.sere` takes them.

    Attributes:
        top_s: S, at least 1.
        threshold: rho; 0 means no cutoff.
        floor: Least number of primary experts; None means K.
        everyone: Whether prefill rows are re-routed too (phase ``all``).
        merge: Whether a row's slots that end on one expert become one.
        redirect_padding: Whether padding rows are pointed at the lowest expert that the step loads.

    """

    top_s: int = 2
    threshold: float = 0.0
    floor: int | None = None
    everyone: bool = False
    merge: bool = False
    redirect_padding: bool = True

    @classmethod
    def of(cls, policy: Policy, redirect_padding: bool = True) -> Options:
        """Read the parameters off a policy.

        Raises:
            PolicyError: If the fused kernels do not implement the policy; :func:`obstacle` says why.

        """
        reason = obstacle(policy)
        if reason is not None or not isinstance(policy.select, UnionTopS):
            raise PolicyError(f"{policy.name}: {reason}. Call policy.route instead.")
        threshold = policy.fill.threshold if isinstance(policy.fill, MostSimilar) else 0.0
        select = policy.select
        return cls(
            select.top_s, threshold, select.floor, policy.phase == "all", policy.merge, redirect_padding
        )

    def resolved(self, top_k: int) -> tuple[int, int, bool, bool]:
        """S, floor, merge and redirect in a layer with ``top_k`` slots.

        A setting that can change nothing (:meth:`sere.routing.Policy.inert`) becomes ``S = K`` with
        the rest off: then every routed expert is primary and the kernel copies its input.
        """
        if self.top_s >= top_k or self.threshold > 1:
            return top_k, 0, False, False
        floor = top_k if self.floor is None else self.floor
        return self.top_s, floor, self.merge, self.redirect_padding


def obstacle(policy: Policy) -> str | None:
    """Say why the fused kernels do not implement ``policy``, or None."""
    parts = (type(policy.select), type(policy.fill), type(policy.weigh))
    if parts == (UnionTopS, MostSimilar, Keep):
        return None
    names = " + ".join(part.__name__ for part in parts)
    return f"only UnionTopS + MostSimilar + Keep is fused, not {names}"


@dataclass(frozen=True, eq=False)
class LayerTable:
    """One layer's similarities, prepared; both tensors keep their address for the layer's life.

    Attributes:
        similarity: Shape [E, E], float32, contiguous; what the definition and the CPU read.
        order: Shape [E, ceil(E / STRIDE) * STRIDE], int16; row u lists the substitutes of u in falling
            similarity (float32, ties to the lowest id), cut at the threshold and filled up with u. The
            first active entry is u's substitute, so a GPU reads a few entries and compares no floats.
        threshold: The threshold that the order was cut at.

    """

    similarity: Tensor
    order: Tensor
    threshold: float

    @classmethod
    def prepare(
        cls, layer: LayerStatistics, threshold: float, device: torch.device | str | None = None
    ) -> LayerTable:
        """Make the table; a changed threshold is a new table, not a new kernel.

        Args:
            layer: Statistics with a similarity.
            threshold: rho.
            device: Where the kernel runs; None leaves the tensors where the similarity is.

        Raises:
            RoutingError: If there is no square, finite similarity.

        """
        matrix = layer.similarity
        if matrix is None or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            shape = None if matrix is None else tuple(matrix.shape)
            raise RoutingError(f"a table needs a square similarity, got {shape}. Calibrate this model.")
        if not bool(matrix.isfinite().all()):
            raise RoutingError("the similarity has entries that are not finite. Calibrate this model again.")
        matrix = matrix.detach().to(device=device or matrix.device, dtype=torch.float32).contiguous()
        return cls(matrix, _order(matrix, threshold), threshold)

    @property
    def num_experts(self) -> int:
        """E."""
        return self.similarity.shape[0]


def _order(similarity: Tensor, threshold: float) -> Tensor:
    experts = similarity.shape[0]
    own = torch.arange(experts, device=similarity.device).unsqueeze(1)
    others = similarity.clone().fill_diagonal_(float("-inf"))
    values, order = others.sort(dim=1, descending=True, stable=True)
    cutoff = torch.tensor(threshold, dtype=torch.float32, device=similarity.device)
    cut = values < cutoff if threshold > 0 else values == float("-inf")
    width = -(-experts // STRIDE) * STRIDE
    table = own.expand(experts, width).clone()
    table[:, :experts] = torch.where(cut, own, order)
    return table.to(torch.int16)
