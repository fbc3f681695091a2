"""The pairwise stage of calibration against a loop over pairs that calls the definition.

    python benchmarks/calibration.py [--experts 128 --tokens 2048 --width 512 --sample 12 --json FILE]

Both sides run in this process on one thread, on the same random expert outputs; both take these as
float32, as a model gives them, and work in float64. With --converted the loop is handed float64
copies made beforehand, which spares it the conversions. The loop is timed on a sample of pairs, spread over
all, and scaled to their number; every sampled value is compared with the matrix. Kernels of CKA are
made anew for each pair, as the definition (and the published code) does. No model is run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from sere.artifact import METRICS
from sere.calibration.cka import cka
from sere.calibration.moments import gram, normalised_gram, squared_distances


def kernel_matrix(x: Tensor, kernel: str) -> Tensor:
    if kernel == "linear":
        return x @ x.T
    if kernel == "poly":
        return (x @ x.T + 1).square()
    squares = x.square().sum(1)
    distances = squares[:, None] + squares[None, :] - 2 * x @ x.T
    return torch.exp(-distances / (2 * distances.var()))


def hsic(k: Tensor, other: Tensor, unbiased: bool) -> Tensor:
    if not unbiased:
        centred = k - k.mean(0, keepdim=True) - k.mean(1, keepdim=True) + k.mean()
        return (centred * other).sum()
    n = k.shape[0]
    k, other = k - k.diagonal().diag(), other - other.diagonal().diag()
    cross = k.sum(0) @ other.sum(0)
    return (k * other).sum() + k.sum() * other.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * cross


def definition(metric: str, x: Tensor, y: Tensor) -> Tensor:
    """Similarity of one pair, [N, H] each; for Frobenius the distance, as its scale needs all pairs."""
    x, y = x.double(), y.double()
    if metric == "frobenius":
        return (x - y).norm()
    if metric == "cosine":
        return F.cosine_similarity(x, y, dim=1).mean()
    _, kernel, estimator = metric.split("_")
    k, other, unbiased = kernel_matrix(x, kernel), kernel_matrix(y, kernel), estimator == "unbiased"
    return hsic(k, other, unbiased) / (hsic(k, k, unbiased) * hsic(other, other, unbiased)).sqrt()


def pairwise(metric: str, outputs: Tensor) -> Tensor:
    """All pairs at once, as calibration computes them; for Frobenius the distances."""
    if metric.startswith("cka"):
        return cka(outputs, [metric])[metric]
    if metric == "frobenius":
        return squared_distances(outputs, gram(outputs)).sqrt()
    return normalised_gram(outputs)[0] / outputs.shape[1]


def timed(work: Callable[[], Tensor], repeats: int) -> tuple[float, Tensor]:
    best, result = float("inf"), torch.empty(0)
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def row(metric: str, outputs: Tensor, held: Tensor, sample: int) -> dict[str, float | str]:
    """Time both sides for one metric."""
    experts = outputs.shape[0]
    light = not metric.startswith("cka")
    ours, matrix = timed(lambda: pairwise(metric, outputs), 3 if light else 1)
    total = experts * (experts - 1) // 2
    pairs = torch.combinations(torch.arange(experts))[:: max(1, total // (40 * sample if light else sample))]
    start = time.perf_counter()
    values = torch.stack([definition(metric, held[p], held[q]) for p, q in pairs.tolist()])
    loop = (time.perf_counter() - start) / len(pairs) * total
    found = matrix[pairs[:, 0], pairs[:, 1]]
    error = float(((found - values).abs() / values.abs().clamp(min=1e-3)).max())
    return {
        "metric": metric,
        "matrix_seconds": ours,
        "loop_seconds": loop,
        "pairs_timed": len(pairs),
        "pairs": total,
        "ratio": loop / ours,
        "largest_relative_difference": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--sample", type=int, default=12, help="pairs of the loop that are timed for a CKA")
    parser.add_argument("--metric", action="append", choices=METRICS, help="repeatable; default all")
    parser.add_argument("--converted", action="store_true", help="hand the loop float64 outputs")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    outputs = torch.randn(args.experts, args.tokens, args.width, generator=draw)
    outputs += torch.randn(1, args.tokens, args.width, generator=draw)
    held = outputs.double() if args.converted else outputs
    rows = [row(metric, outputs, held, args.sample) for metric in args.metric or METRICS]
    size = f"{args.experts} experts x {args.tokens} tokens x width {args.width}"
    table = Table("metric", "all pairs at once, s", "loop over pairs, s", "ratio", "difference", title=size)
    for each in rows:
        loop = f"{each['loop_seconds']:.1f} ({each['pairs_timed']} of {each['pairs']} timed)"
        difference = f"{each['largest_relative_difference']:.0e}"
        table.add_row(
            str(each["metric"]), f"{each['matrix_seconds']:.2f}", loop, f"{each['ratio']:.0f}x", difference
        )
    Console(width=110).print(table)
    held_as = "converted to float64 beforehand for the loop" if args.converted else "held as float32"
    print(f"One thread, float64 on both sides, outputs {held_as}; the loop is scaled from the pairs timed.")
    if args.json:
        args.json.write_text(json.dumps({"size": size, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
