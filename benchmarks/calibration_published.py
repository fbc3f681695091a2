"""The pairwise stage of calibration against the published utility, a loop over pairs in the model's dtype.

    python -m benchmarks.calibration_published PATH/TO/calibration/utils.py [--experts 64 --tokens 4096
        --width 2048 --dtype bfloat16 --sample 3 --metric frobenius --json FILE]

The file is that of the method's reference code (JL-Cheng/SERE), which is not part of this repository.
Both sides take the same random expert outputs in this process on one thread: the utility in the
type given, as its models hand them over, ours with sums in float64. The utility runs on the first
``--sample`` experts (CKA) or on eight of them (else), and its time is scaled from their pairs, the
diagonal included as it computes it, to all. Each value is also compared with the definition in float64:
``error`` is the greatest difference of a similarity. Memory is the process's greatest resident size
during the work above that before it, on Linux.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from benchmarks.calibration import definition, pairwise
from rich.console import Console
from rich.table import Table
from torch import Tensor

from sere.evaluation.files import write_text

METRICS = ("frobenius", "cosine", "cka_linear_biased", "cka_rbf_biased", "cka_poly_biased")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("published", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def published(module: ModuleType, metric: str, outputs: Tensor) -> Tensor:
    """All pairs of ``outputs`` [E, N, H] by the utility; cosines back from its own scale of 0 to 1."""
    experts = [each.unsqueeze(0) for each in outputs]
    if not metric.startswith("cka"):
        found = module.compute_similarity_matrix_gpu(experts, metric, device="cpu")
        return 2 * found - 1 if metric == "cosine" else found
    kernel = metric.split("_")[1].replace("poly", "polynomial")
    return module.compute_similarity_matrix_gpu(experts, "cka", kernel, device="cpu")


def ours(metric: str, outputs: Tensor) -> Tensor:
    found = pairwise(metric, outputs)
    return 1 - found / found.max() if metric == "frobenius" else found


def exact(metric: str, outputs: Tensor) -> Tensor:
    """Work the definition out pair by pair, in float64."""
    count = len(outputs)
    found = torch.eye(count, dtype=torch.float64)
    for p, q in torch.combinations(torch.arange(count)).tolist():
        found[p, q] = found[q, p] = definition(metric, outputs[p], outputs[q])
    return 1 - found.fill_diagonal_(0) / found.max() if metric == "frobenius" else found


def measured(work: Callable[[], Tensor]) -> tuple[float, float, Tensor]:
    """Seconds, GiB above what was resident before, and the result."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the greatest size starts anew
    before = resident("VmRSS")
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, resident("VmHWM") - before, found.double()


def resident(field: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 2**20
    raise SystemExit("memory is read from Linux's /proc.")


def row(module: ModuleType, metric: str, outputs: Tensor, sample: int) -> dict[str, float | str]:
    count = sample if metric.startswith("cka") else min(8, len(outputs))
    some = outputs[:count]
    loop, loop_memory, theirs = measured(lambda: published(module, metric, some))
    seconds, memory, matrix = measured(lambda: ours(metric, outputs))
    truth = exact(metric, some)
    mine = (
        ours(metric, some).double() if metric == "frobenius" else matrix[:count, :count]
    )  # scale of its pairs
    off = ~torch.eye(count, dtype=torch.bool)
    timed, total = count * (count + 1) // 2, len(outputs) * (len(outputs) + 1) // 2
    return {
        "metric": metric,
        "loop_seconds": loop / timed * total,
        "pairs_timed": timed,
        "pairs": total,
        "seconds": seconds,
        "ratio": loop / timed * total / seconds,
        "loop_gib": loop_memory,
        "gib": memory,
        "loop_error": float((theirs - truth)[off].abs().max()),
        "error": float((mine - truth)[off].abs().max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("utility", type=Path)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--sample", type=int, default=3, help="experts that the utility's CKA is timed on")
    parser.add_argument("--metric", action="append", choices=METRICS, help="repeatable; default all")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    module, draw = load(args.utility), torch.Generator().manual_seed(0)
    dtype = getattr(torch, args.dtype)
    common = torch.randn(args.tokens, args.width, generator=draw)
    outputs = torch.stack(
        [
            # of a length near one, as residual updates are: the kernels of RBF and polynomial mean something
            ((torch.randn(args.tokens, args.width, generator=draw) + common) / args.width**0.5).to(dtype)
            for _ in range(args.experts)
        ]
    )
    rows = []
    for metric in args.metric or METRICS:
        rows.append(row(module, metric, outputs, args.sample))
        print(json.dumps(rows[-1]), flush=True)
    size = f"{args.experts} experts x {args.tokens} tokens x width {args.width}, {args.dtype}"
    table = Table("metric", "published, s", "ours, s", "ratio", "GiB", "ours", "error", "ours", title=size)
    for each in rows:
        table.add_row(
            str(each["metric"]),
            f"{each['loop_seconds']:.0f} ({each['pairs_timed']} of {each['pairs']} timed)",
            f"{each['seconds']:.1f}",
            f"{each['ratio']:.0f}x",
            f"{each['loop_gib']:.2f}",
            f"{each['gib']:.2f}",
            f"{each['loop_error']:.0e}",
            f"{each['error']:.0e}",
        )
    Console(width=120).print(table)
    if args.json:
        write_text(args.json, json.dumps({"size": size, "torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
