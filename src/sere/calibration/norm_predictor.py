"""Predict the length of an expert's output from the layer's input, by one linear function an expert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sere.calibration.routed import routed_slots

ROWS = ("rows.hidden", "rows.experts", "rows.lengths")
"""What is kept of every batch until a layer's last one is in."""
_LEAST = 1e-6
"""A shorter output counts as that long, so that it has a logarithm."""
_BLOCK = 4096


class RoutedLengths:
    """A batch's layer inputs, and the lengths of the outputs of the experts they were routed to."""

    def __init__(self) -> None:
        self.experts: list[Tensor] = []
        self.lengths: list[Tensor] = []

    def add(self, outputs: Tensor, ids: Tensor, weights: Tensor) -> None:
        """Add a chunk of tokens.

        Args:
            outputs: Outputs of all experts, shape [E, C, H], any floating dtype.
            ids: Experts that the router chose, shape [C, K], any integer dtype.
            weights: Their weights, shape [C, K], any floating dtype.

        """
        slots, routed = routed_slots(ids, weights, outputs.shape[0])
        chosen = outputs[slots, torch.arange(ids.shape[0], device=ids.device).unsqueeze(1)]
        length = torch.linalg.vector_norm(chosen, dim=2, dtype=torch.float32)
        self.experts.append(torch.where(routed, slots, -1).to(torch.int32).cpu())
        self.lengths.append(length.cpu())

    def rows(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the batch by the names of :data:`ROWS`; ``hidden`` are its inputs, shape [N, H]."""
        kept = (hidden.detach().to("cpu", copy=True), torch.cat(self.experts), torch.cat(self.lengths))
        return dict(zip(ROWS, kept, strict=True))


def fit(batches: Sequence[Mapping[str, Tensor]], norm: Tensor) -> Tensor:
    """Regress ``log |E_p(x)|`` on x over the tokens routed to p, for every expert p.

    Ridge regression with an intercept that is not pulled. The ridge is the trace of the inputs' covariance
    over those tokens, added to the sum of their outer products: it counts as much as the data where an
    expert has as many tokens as x has dimensions, and fades with more. An expert that no token was routed
    to is taken to be as long as it is on average over all tokens.

    Args:
        batches: Each as :meth:`RoutedLengths.rows` gives it.
        norm: Mean length of every expert's output over all tokens, shape [E], float64.

    Returns:
        Shape [E, H + 1], float64, on the CPU: the coefficients of x, then the intercept.

    Source: BASE, arXiv 2609.36222, which predicts the log-norm linearly; the ridge is ours.

    """
    hidden, experts, lengths = (torch.cat([batch[name] for batch in batches]) for name in ROWS)
    logs = lengths.double().clamp(min=_LEAST).log()
    found = torch.zeros(len(norm), hidden.shape[1] + 1, dtype=torch.float64)
    found[:, -1] = norm.clamp(min=_LEAST).log()
    for expert in range(len(norm)):
        tokens, slots = (experts == expert).nonzero(as_tuple=True)
        if len(tokens):
            found[expert] = _regression(hidden, tokens, logs[tokens, slots])
    return found


def _regression(hidden: Tensor, tokens: Tensor, wanted: Tensor) -> Tensor:
    """Coefficients and intercept, shape [H + 1], from some rows of ``hidden``, a block at a time."""
    width = hidden.shape[1]
    mean = torch.zeros(width, dtype=torch.float64)
    for part in torch.split(tokens, _BLOCK):
        mean += hidden[part].double().sum(0)
    mean /= len(tokens)
    square, cross = torch.zeros(width, width, dtype=torch.float64), torch.zeros_like(mean)
    middle = wanted.mean()
    for part, values in zip(torch.split(tokens, _BLOCK), torch.split(wanted, _BLOCK), strict=True):
        rows = hidden[part].double() - mean
        square.addmm_(rows.T, rows)
        cross += rows.T @ (values - middle)
    spread = square.trace() / len(tokens)
    square.diagonal().add_(spread.clamp(min=torch.finfo(torch.float64).tiny))
    slope = torch.linalg.solve(square, cross)
    return torch.cat([slope, (middle - slope @ mean).unsqueeze(0)])
