"""Sums over tokens from which Frobenius, cosine and norms follow."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

_EXPERTS = 32
_CACHED_BYTES = 4 * 2**20
_STREAMED_BYTES = 128 * 2**20
_NEARLY_ALIKE = 1e-4
"""Greatest squared distance over greatest squared norm below which digits have to be saved."""


def symmetric_product(rows: Tensor) -> Tensor:
    """``rows @ rows.T`` with only the upper blocks computed and mirrored.

    Args:
        rows: Shape [E, D], float64.

    Returns:
        Shape [E, E], float64, exactly symmetric.

    """
    total = rows.new_zeros(rows.shape[0], rows.shape[0])
    _add_product(total, rows)
    return _mirrored(total)


def _add_product(total: Tensor, rows: Tensor) -> None:
    """Add the upper blocks of ``rows @ rows.T`` to ``total``."""
    for start in range(0, rows.shape[0], _EXPERTS):
        stop = start + _EXPERTS
        total[start:stop, start:].addmm_(rows[start:stop], rows[start:].T)


def _mirrored(total: Tensor) -> Tensor:
    upper = total.triu()
    return upper + upper.triu(1).T


def _blocks(outputs: Tensor, centred: bool = False) -> Iterator[Tensor]:
    """Yield a few tokens at a time in float64, shape [E, B, H]: as many as a processor's cache holds.

    If ``centred``, the mean over experts is taken off each token.
    """
    for block in torch.split(outputs, at_once(outputs, outputs.shape[0]), 1):
        exact = block.to(exact_device(outputs), torch.float64)
        yield exact - exact.mean(0) if centred else exact


def at_once(outputs: Tensor, experts: int) -> int:
    """Tokens whose ``outputs`` of so many experts make one block in float64."""
    size = _CACHED_BYTES if outputs.device.type in ("cpu", "mps") else _STREAMED_BYTES
    return max(1, size // (8 * experts * outputs.shape[2]))


def exact_device(values: Tensor) -> torch.device:
    """Return the device for float64 work on ``values``: their own, but for Apple's, which has none."""
    return torch.device("cpu") if values.device.type == "mps" else values.device


def _zeros(outputs: Tensor, *more: int) -> Tensor:
    return torch.zeros(outputs.shape[0], *more, dtype=torch.float64, device=exact_device(outputs))


def gram(outputs: Tensor, *, centred: bool = False) -> Tensor:
    """Sum over tokens of ``<E_p(x), E_q(x)>``.

    Args:
        outputs: Outputs of all experts, shape [E, C, H], any floating dtype.
        centred: Take the mean over experts off each token's outputs first.

    Returns:
        Shape [E, E], float64, exactly symmetric.

    """
    total = _zeros(outputs, outputs.shape[0])
    for block in _blocks(outputs, centred):
        _add_product(total, block.flatten(1))
    return _mirrored(total)


def normalised_gram(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over tokens of the cosine of ``E_p(x)`` and ``E_q(x)``, and of ``|E_p(x)|``.

    A row of length 0 has cosine 0 with everything, itself too.

    Args:
        outputs: Outputs of all experts, shape [E, C, H], any floating dtype.

    Returns:
        Shapes [E, E] and [E], float64; the first exactly symmetric.

    """
    total, lengths = _zeros(outputs, outputs.shape[0]), _zeros(outputs)
    for block in _blocks(outputs):
        norms = block.square().sum(2, keepdim=True).sqrt()
        lengths += norms.sum((1, 2))
        unit = block * torch.where(norms > 0, norms.reciprocal(), 0.0)
        _add_product(total, unit.flatten(1))
    return _mirrored(total), lengths


def squared_distances(outputs: Tensor, summed: Tensor) -> Tensor:
    """``|E_p(X) - E_q(X)|_F^2`` of every pair.

    The difference of two squared norms and their inner products loses the digits that the outputs
    share. Where all experts are nearly alike these are most of them, so the sums are then made anew
    without the experts' mean, which no distance depends on.

    Args:
        outputs: Outputs of all experts, shape [E, C, H], any floating dtype.
        summed: Their :func:`gram`.

    Returns:
        Shape [E, E], float64, exactly symmetric.

    """
    squared = _differences(summed)
    if bool(squared.max() < _NEARLY_ALIKE * summed.diagonal().max()):
        squared = _differences(gram(outputs, centred=True))
    return squared


def _differences(summed: Tensor) -> Tensor:
    own = summed.diagonal()
    both = own.unsqueeze(0) + own.unsqueeze(1)
    squared = both - 2 * summed
    # What is left of a difference of equal outputs is rounding; it must not become a distance.
    return torch.where(squared > 1e-14 * both, squared, 0.0).fill_diagonal_(0.0)


class Moments:
    """Second moments of all experts' outputs over the tokens of one batch, in float64.

    Attributes:
        tokens: Tokens seen.
        gram: Sum over tokens of ``<E_p(x), E_q(x)>``, shape [E, E].
        apart: Sum over tokens of ``|E_p(x) - E_q(x)|^2``, shape [E, E].
        normalised: The same for outputs scaled to length one, shape [E, E].
        norm: Sum over tokens of ``|E_p(x)|``, shape [E].

    """

    def __init__(self, num_experts: int, device: torch.device) -> None:
        self.tokens = 0
        self.gram = torch.zeros(num_experts, num_experts, dtype=torch.float64, device=device)
        self.apart = torch.zeros_like(self.gram)
        self.normalised = torch.zeros_like(self.gram)
        self.norm = torch.zeros(num_experts, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor) -> None:
        """Add a chunk of tokens; ``outputs`` has shape [E, C, H] and any floating dtype."""
        self.tokens += outputs.shape[1]
        summed = gram(outputs)
        self.gram += summed
        self.apart += squared_distances(outputs, summed)
        normalised, lengths = normalised_gram(outputs)
        self.normalised += normalised
        self.norm += lengths

    def broken_expert(self) -> int | None:
        """Lowest expert with a NaN or infinite output, or None."""
        broken = ~self.norm.isfinite()
        return int(broken.int().argmax()) if bool(broken.any()) else None
