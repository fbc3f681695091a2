"""Sums over routed tokens: what two experts gave on the tokens that the router sent to both."""

from __future__ import annotations

import torch
from torch import Tensor

from sere.calibration.moments import at_once, exact_device
from sere.routing.refit import repeats


class RoutedMoments:
    """Moments of experts' outputs over the tokens of one batch that the router sent to them, in float64.

    The outputs are those that calibration makes anyway, so this costs no forward pass: K x K inner products a
    token. Sums are kept on the CPU and added token by token, whatever the chunk. Over batches, processes and
    texts they add up.

    A pair (p, q) sums over tokens routed to both, a diagonal over tokens routed to p. A slot of weight 0,
    or of an id that is no routed expert, is not routed; a row that names an expert twice counts it once.

    Attributes:
        count: Number of tokens, shape [E, E].
        norm: ``|E_p(x)|``, shape [E].
        gram: ``<E_p(x), E_q(x)>``, shape [E, E].
        cross: ``|E_p(x)| <E_p(x), E_q(x)>``, shape [E, E], not symmetric.
        target: ``|E_p(x)| |E_q(x)|^2``, shape [E, E], not symmetric.
        source: ``|E_p(x)|^3``, shape [E, E], not symmetric: q says over which tokens.

    Source: the weighted regression of ExFold, arXiv 2608.24938, with p folded onto q, is a function of cross,
    target and source; removal errors (BASE, arXiv 2609.36222) of count and gram.

    """

    def __init__(self, num_experts: int) -> None:
        self.count, self.gram, self.cross, self.target, self.source = (
            torch.zeros(num_experts, num_experts, dtype=torch.float64) for _ in range(5)
        )
        self.norm = torch.zeros(num_experts, dtype=torch.float64)

    def add(self, outputs: Tensor, ids: Tensor, weights: Tensor) -> None:
        """Add a chunk of tokens.

        Args:
            outputs: Outputs of all experts, shape [E, C, H], any floating dtype.
            ids: Experts that the router chose, shape [C, K], any integer dtype.
            weights: Their weights, shape [C, K], any floating dtype.

        """
        slots, routed = routed_slots(ids, weights, outputs.shape[0])
        rows = torch.arange(ids.shape[0], device=ids.device)
        for part in torch.split(rows, at_once(outputs, ids.shape[1])):
            chosen = outputs[slots[part], part.unsqueeze(1)].to(exact_device(outputs), torch.float64)
            inner = (chosen @ chosen.transpose(1, 2)).cpu()
            self._add(_mirrored(inner), slots[part].cpu(), routed[part].cpu())

    def _add(self, inner: Tensor, slots: Tensor, routed: Tensor) -> None:
        """Add some tokens; ``inner`` are the inner products of their slots' outputs, shape [B, K, K]."""
        square = inner.diagonal(dim1=1, dim2=2)
        norm = square.sqrt()
        both = routed.unsqueeze(2) & routed.unsqueeze(1)
        place = (slots.unsqueeze(2) * len(self.norm) + slots.unsqueeze(1))[both]
        mine = norm.unsqueeze(2)
        for total, value in (
            (self.count, torch.ones_like(inner)),
            (self.gram, inner),
            (self.cross, mine * inner),
            (self.target, mine * square.unsqueeze(1)),
            (self.source, (mine * square.unsqueeze(2)).expand_as(inner)),
        ):
            total.view(-1).index_add_(0, place, value[both])
        self.norm.index_add_(0, slots[routed], norm[routed])

    def sums(self) -> dict[str, Tensor]:
        """Return the sums by the field name of the artifact."""
        return {f"routed_{name}": value for name, value in vars(self).items()}


def routed_slots(ids: Tensor, weights: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """Return each slot's expert, int64, 0 where it is none, and which slots are routed; both shape [C, K]."""
    routed = (ids >= 0) & (ids < experts) & (weights != 0) & ~weights.isnan()
    slots = torch.where(routed, ids, 0).long()
    return slots, routed & ~repeats(slots, routed)


def _mirrored(inner: Tensor) -> Tensor:
    return inner.triu() + inner.triu(1).transpose(1, 2)
