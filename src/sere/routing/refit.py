"""Weigh by calibration: weights that make the new experts give what the old ones would have given.

With ``G[p, q]`` the calibrated mean of ``<E_p(x), E_q(x)>``, the expected squared distance of two
mixtures of experts is a quadratic form in their weights, so the best new weights are a least-squares
solution that needs no hidden state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sere.errors import PolicyError
from sere.routing.batch import RoutingBatch
from sere.routing.fill import Filled
from sere.routing.layer import LayerStatistics
from sere.routing.part import Part
from sere.routing.scores import needed
from sere.routing.weigh import Renormalise, changed_rows


@dataclass(frozen=True)
class Project(Part):
    """Scale a moved slot by the scalar that projects its old expert's output onto its new one's.

    ``w' = w * G[u, v] / (G[v, v] + ridge * mean of G's diagonal)``.

    Attributes:
        ridge: Relative ridge, at least 0.

    Source: ExFold, arXiv 2608.24938, with moments over all tokens instead of routed ones.

    """

    ridge: float = 1e-3

    def __post_init__(self) -> None:
        check_ridge(self.ridge)

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled, layer: LayerStatistics
    ) -> Tensor:
        """Scale in float32."""
        gram = needed(layer.gram, "gram", batch.num_experts)
        own = gram.diagonal()
        gain = gram / (own + self.ridge * own.mean()).unsqueeze(0)
        safe = batch.ids.clamp(0, batch.num_experts - 1).long()
        new = filled.ids.clamp(0, batch.num_experts - 1).long()
        moved = valid & eligible.unsqueeze(1) & (filled.ids != batch.ids) & ~filled.removed
        scaled = (batch.weights.float() * gain[safe, new]).to(batch.weights.dtype)
        return torch.where(moved, scaled, batch.weights).masked_fill(filled.removed, 0)

    @property
    def requires(self) -> frozenset[str]:
        """The second moments."""
        return frozenset({"gram"})


@dataclass(frozen=True)
class Refit(Part):
    """Least-squares weights of a row's new experts for its old mixture.

    For a row with old weights w on experts u and new experts v (each once): the a that minimises
    ``|| sum_k w_k E_uk - sum_j a_j E_vj ||^2`` in expectation, from
    ``(G_vv + ridge) a = G_vu w + ridge * a_0``. Rows in which nothing changed are not touched.

    Attributes:
        ridge: Added to the diagonal, relative to its mean over the row's experts, at least 0.
        towards: What the ridge pulls to, ``a_0``: ``zero``, or the ``router``'s own weights of the new
            experts, on the row's old sum. The moments are means over all tokens; the router knows this one.

    """

    ridge: float = 1e-2
    towards: Literal["zero", "router"] = "zero"

    def __post_init__(self) -> None:
        check_ridge(self.ridge)
        if self.towards not in ("zero", "router"):
            raise PolicyError(f"a refit goes towards 'zero' or 'router', not {self.towards!r}.")

    def __call__(
        self, batch: RoutingBatch, valid: Tensor, eligible: Tensor, filled: Filled, layer: LayerStatistics
    ) -> Tensor:
        """Solve K x K a row, in float32."""
        gram = needed(layer.gram, "gram", batch.num_experts)
        old = batch.ids.clamp(0, batch.num_experts - 1).long()
        new = filled.ids.clamp(0, batch.num_experts - 1).long()
        live = valid & ~filled.removed & ~repeats(new, valid & ~filled.removed)
        wanted = batch.weights.float().masked_fill(~valid, 0).unsqueeze(2)
        cross = gram[new.unsqueeze(2), old.unsqueeze(1)].masked_fill(~live.unsqueeze(2), 0)
        square = gram[new.unsqueeze(2), new.unsqueeze(1)]
        square = square.masked_fill(~(live.unsqueeze(2) & live.unsqueeze(1)), 0)
        own = square.diagonal(dim1=1, dim2=2)
        mean = own.sum(1, keepdim=True) / live.sum(1, keepdim=True).clamp(min=1)
        # Slots that do not take part become rows of the identity, so that the system stays regular.
        shift = torch.where(live, self.ridge * mean + torch.finfo(torch.float32).tiny, torch.ones_like(own))
        target = cross @ wanted
        if self.towards == "router":
            prior = Renormalise()(batch, valid, eligible, filled, layer).float().masked_fill(~live, 0)
            target = target + (shift * prior).unsqueeze(2)
        solved, _ = torch.linalg.solve_ex(square + torch.diag_embed(shift), target)
        changed = changed_rows(batch, eligible, filled)
        fitted = solved.squeeze(2).masked_fill(~live, 0)
        usable = changed & fitted.isfinite().all(1, keepdim=True) & valid
        return torch.where(usable, fitted.to(batch.weights.dtype), batch.weights).masked_fill(
            filled.removed, 0
        )

    @property
    def requires(self) -> frozenset[str]:
        """The second moments."""
        return frozenset({"gram"})


def repeats(ids: Tensor, slots: Tensor) -> Tensor:
    """Slots whose expert an earlier one of ``slots`` in the row names already, shape [T, K], bool."""
    place = torch.arange(ids.shape[1], device=ids.device)
    same = (ids.unsqueeze(2) == ids.unsqueeze(1)) & slots.unsqueeze(1) & slots.unsqueeze(2)
    return (same & (place.view(1, 1, -1) < place.view(1, -1, 1))).any(2)


def check_ridge(ridge: float) -> None:
    """Refuse a negative ridge.

    Raises:
        PolicyError: If it is negative or not a number.

    """
    if not ridge >= 0:
        raise PolicyError(f"ridge must be 0 or more, got {ridge}.")
