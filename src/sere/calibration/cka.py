r"""Centred kernel alignment of every pair of experts, tile by tile.

For expert e with outputs X (N tokens), kernel matrix K(x_i, x_j):

* linear: ``<x, y>``
* rbf: ``exp(-|x - y|^2 / (2 v))``, where v is the variance of the N x N squared distances (divisor N^2 - 1);
  if v <= 1e-8 the kernel is constant, as in the published code
* poly: ``(<x, y> + 1)^2``

``CKA(K, L) = HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L))``, with two estimators of HSIC up to factors
that cancel:

* biased: inner product of the doubly centred matrices, HKH, as the published code computes it
* unbiased: HSIC_1 of Song et al. (JMLR 2012), eq. 5, as used by Nguyen et al. (ICLR 2021). It equals the
  inner product of the U-centred matrices (Szekely and Rizzo, 2014): diagonal zero, row sums over N - 2.

Both are inner products of centred matrices, so all pairs are one product of [E, N^2] matrices. They
are never held whole: a tile of rows x columns is made for all experts at once and added up; symmetry
halves the tiles. Functions of the row alone, or of the column alone, vanish in either centring, so
they are left out before they can swallow digits: inputs are centred and large constants never appear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from sere.calibration.moments import exact_device, symmetric_product

CONSTANT_VARIANCE = 1e-8
_TILE_BYTES = 64 * 2**20
_NOISE = 1e-12

Tile = tuple[slice, slice, Tensor]


class _Outputs:
    """Centred outputs of all experts, and their linear kernel in tiles."""

    def __init__(self, outputs: Tensor, device: torch.device, tile: int | None) -> None:
        self.raw, self.device = outputs, device
        self.experts, self.tokens, width = outputs.shape
        self.tile = tile or max(16, min(256, _TILE_BYTES // (8 * self.experts * width)))
        self.mean = outputs.to(device).mean(1, keepdim=True, dtype=torch.float64)
        blocks = [self.rows(rows) for rows in self.blocks()]
        self.squares = torch.cat([block.square().sum(2) for block in blocks], 1)
        self.shift = torch.cat([(block * self.mean).sum(2) for block in blocks], 1)
        self.offset = self.mean.square().sum((1, 2)) + 1
        self.scale = self.squares.mean(1) + self.offset - 1

    def blocks(self) -> list[slice]:
        starts = range(0, self.tokens, self.tile)
        return [slice(start, min(start + self.tile, self.tokens)) for start in starts]

    def rows(self, rows: slice) -> Tensor:
        return self.raw[:, rows].to(self.device, torch.float64) - self.mean

    def tiles(self) -> Iterator[Tile]:
        """Yield (rows, columns, inner products [E, R, C]) of the upper triangle."""
        blocks = self.blocks()
        for place, rows in enumerate(blocks):
            left = self.rows(rows)
            for columns in blocks[place:]:
                right = left if columns is rows else self.rows(columns)
                yield rows, columns, left @ right.transpose(1, 2)


Kernel = Callable[[Tile], Tensor]


def _linear(_: _Outputs) -> Kernel:
    return lambda tile: tile[2]


def _poly(x: _Outputs) -> Kernel:
    def kernel(tile: Tile) -> Tensor:
        rows, columns, inner = tile
        left, right = x.shift[:, rows, None], x.shift[:, None, columns]
        return inner * (inner + 2 * (x.offset[:, None, None] + left + right)) + 2 * left * right

    return kernel


def _rbf(x: _Outputs) -> Kernel:
    energy = torch.zeros(x.experts, dtype=torch.float64, device=x.device)
    for rows, columns, inner in x.tiles():
        energy += (1 if rows is columns else 2) * inner.square().sum((1, 2))
    around = (x.squares - x.squares.mean(1, keepdim=True)).square().sum(1)
    variance = (2 * x.tokens * around + 4 * energy) / max(x.tokens**2 - 1, 1)
    # A constant kernel is zero once centred.
    rate = torch.where(variance > CONSTANT_VARIANCE, 0.5 / variance, 0.0)
    # Kernels near one everywhere are kept as differences from one, kernels near zero as they are.
    shift = torch.where(rate * 2 * x.squares.mean(1) < 1, 1.0, 0.0).to(torch.float64)
    near_one = bool((shift == 1).all())

    def kernel(tile: Tile) -> Tensor:
        rows, columns, inner = tile
        distance = x.squares[:, rows, None] + x.squares[:, None, columns] - 2 * inner
        exponent = distance.clamp_(min=0).mul_(-rate[:, None, None])
        if near_one:
            return exponent.expm1_()
        return torch.where(shift[:, None, None] == 1, exponent.expm1(), exponent.exp())

    return kernel


_KERNELS: dict[str, Callable[[_Outputs], Kernel]] = {"linear": _linear, "rbf": _rbf, "poly": _poly}


class _Centring:
    """Row sums of a kernel, from which both centrings follow."""

    def __init__(self, x: _Outputs, kernel: Kernel) -> None:
        self.count = x.tokens
        self.sums = torch.zeros(x.experts, x.tokens, dtype=torch.float64, device=x.device)
        self.diagonal = torch.zeros_like(self.sums)
        for rows, columns, inner in x.tiles():
            values = kernel((rows, columns, inner))
            self.sums[:, rows] += values.sum(2)
            if rows is columns:
                self.diagonal[:, rows] = values.diagonal(dim1=1, dim2=2)
            else:
                self.sums[:, columns] += values.sum(1)

    def apply(self, values: Tensor, rows: slice, columns: slice, unbiased: bool) -> Tensor:
        """Centre a tile, shape [E, R, C]."""
        n = self.count
        if unbiased:
            means = (self.sums - self.diagonal) / (n - 2)
            total = means.sum(1) / (n - 1)
        else:
            means = self.sums / n
            total = means.sum(1) / n
        left = means[:, rows, None] - total[:, None, None]
        centred = values - left - means[:, None, columns]
        if unbiased and rows is columns:
            centred.diagonal(dim1=1, dim2=2).zero_()
        return centred


def cka(outputs: Tensor, metrics: Sequence[str], *, tile: int | None = None) -> dict[str, Tensor]:
    """CKA of every pair of experts on one batch.

    Args:
        outputs: Outputs of all experts, shape [E, N, H], any floating dtype; N >= 4 for unbiased ones.
        metrics: Names ``cka_<linear|rbf|poly>_<biased|unbiased>``.
        tile: Tokens of a tile's side; the result does not depend on it. None: fitted to 64 MB.

    Returns:
        Matrices by metric name, shape [E, E], float64, exactly symmetric, diagonal one. An expert
        whose centred kernel is zero (constant outputs) has CKA 0 with every other. Biased values lie
        in [0, 1], unbiased ones in [-1, 1].

    """
    x = _Outputs(outputs, exact_device(outputs), tile)
    result: dict[str, Tensor] = {}
    for name in dict.fromkeys(metric.split("_")[1] for metric in metrics):
        kernel = _KERNELS[name](x)
        wanted = [metric for metric in metrics if metric.split("_")[1] == name]
        # What centring leaves of constant outputs is rounding; an RBF kernel of such is exactly zero.
        size = {"linear": x.scale, "poly": (x.scale + 1).square(), "rbf": torch.zeros_like(x.scale)}[name]
        floor = (_NOISE * x.tokens * size).square()
        for metric, sums in _inner_products(x, kernel, wanted).items():
            result[metric] = _align(sums, floor, 0.0 if metric.endswith("_biased") else -1.0)
    return result


def _inner_products(x: _Outputs, kernel: Kernel, metrics: Sequence[str]) -> dict[str, Tensor]:
    centring = _Centring(x, kernel)
    shape = (x.experts, x.experts)
    sums = {metric: torch.zeros(shape, dtype=torch.float64, device=x.device) for metric in metrics}
    for tile in x.tiles():
        rows, columns, _ = tile
        values = kernel(tile)
        for metric in metrics:
            centred = centring.apply(values, rows, columns, metric.endswith("_unbiased"))
            sums[metric] += (1 if rows is columns else 2) * symmetric_product(centred.flatten(1))
    return sums


def _align(sums: Tensor, floor: Tensor, lowest: float) -> Tensor:
    own = sums.diagonal()
    usable = own > floor
    scale = torch.where(usable, own.rsqrt(), 0.0)
    aligned = sums * (scale.unsqueeze(0) * scale.unsqueeze(1))
    return aligned.clamp(lowest, 1.0).fill_diagonal_(1.0)
