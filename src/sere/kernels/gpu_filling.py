"""Launch the second family's kernels: fixed choices, no tuning in a serving step, no wait for the device."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

from sere.kernels.backfilling import BackfillOptions
from sere.kernels.gpu import power_of_two
from sere.routing import RouterScores

WARPS: Final = 8
"""Groups of 32 threads (64 on AMD) of a program."""
BLOCK: Final = 1024
"""Scores, and at most slots, of a block."""


def launch(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    scores: RouterScores,
    total: Tensor | None,
    options: BackfillOptions,
    new_ids: Tensor,
    new_weights: Tensor,
    counts: Tensor,
    held: Tensor | None = None,
    add: bool = False,
) -> None:
    """Re-route into preallocated, contiguous tensors.

    Args:
        ids: Experts, shape [T, K], int32 or int64, contiguous.
        weights: Weights, shape [T, K], contiguous.
        kinds: Row kinds, shape [T], contiguous, or None.
        scores: The router's scores, both of shape [T, E].
        total: What a size is filled up by, shape [E], float32; None sums the scores.
        options: The parameters.
        new_ids: Written; must not share memory with ``ids``.
        new_weights: Written; must not share memory with ``weights``.
        counts: Counters, int64: shape [len(FIELDS)], overwritten; or [3, len(FIELDS)], added to.
        held: S, floor and size as :meth:`BackfillOptions.resolved` gives them, shape [3], int32: read by the
            kernel instead of the options', so a captured graph follows them.
        add: Whether counters are added.

    """
    from sere.kernels.gpu_backfill import backfill_kernel

    order, weight = scores.order.float().contiguous(), scores.weight.float().contiguous()
    rows, top_k = ids.shape
    top_s, floor, size, redirect = options.resolved(top_k)
    backfill_kernel[(1,)](
        ids,
        weights,
        ids if kinds is None else kinds,
        order,
        weight,
        weight if total is None else total.float().contiguous(),
        weight if held is None else held,
        new_ids,
        new_weights,
        counts,
        rows,
        top_s,
        floor,
        size,
        **constants(top_k, order.shape[1], options),
        HAS_KINDS=kinds is not None,
        REDIRECT=options.redirect_padding if held is not None else redirect,
        TOTAL=0 if not options.size else 2 if total is None else 1,
        HELD=held is not None,
        ADD=add,
        num_warps=WARPS,
        enable_fp_fusion=False,
    )


def constants(top_k: int, experts: int, options: BackfillOptions) -> dict[str, Any]:
    """Compile-time sizes: blocks of so many scores where scores are looked at, else of so many slots."""
    padded, width = max(32, power_of_two(experts)), power_of_two(top_k)
    block, slot_rows = max(1, min(BLOCK // padded, BLOCK // width)), max(1, BLOCK // width)
    sizes = {"E": experts, "EP": padded, "K": top_k, "KP": width, "BT": block, "SLOT_ROWS": slot_rows}
    return {**sizes, "EVERYONE": options.everyone, "RENORMALISE": options.renormalise}
