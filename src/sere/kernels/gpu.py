"""Launch the Triton kernels: fixed choices, no tuning in a serving step, no wait for the device."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from sere.kernels.table import LayerTable, Options

ONE_LAUNCH_SLOTS: Final = 2048
"""Up to this many slots one program does it all; above, two launches share the rows out."""
MOST_SHARES: Final = 32
"""Programs of the first of two launches; each of the second's reads what they all wrote."""


@functools.cache
def available() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


@dataclass(frozen=True)
class Shape:
    """Compile-time sizes.

    Attributes:
        E: Experts.
        EP: The power of two at or above E, at least 32.
        K: Slots a row.
        KP: The power of two at or above K.
        BT: Rows of a block.
        STRIDE: Entries of a row of the order.
        CHUNK: Entries read a turn.
        warps: Groups of 32 threads (64 on AMD) of a program.

    """

    E: int
    EP: int
    K: int
    KP: int
    BT: int
    STRIDE: int
    CHUNK: int
    warps: int

    @classmethod
    def of(cls, rows: int, top_k: int, experts: int, stride: int) -> Shape:
        """Choose: blocks of 128 slots for small steps, else 512; one order entry in four a turn."""
        padded, width = max(32, power_of_two(experts)), power_of_two(top_k)
        block = (128 if rows * width <= 128 else 512) // width
        chunk, warps = (16, 4) if padded <= 128 else (16, 8) if padded <= 256 else (8, 8)
        return cls(experts, padded, top_k, width, block, stride, chunk, warps)

    def constants(self) -> dict[str, int]:
        """Arguments of the kernels."""
        names = ("E", "EP", "K", "KP", "BT", "STRIDE", "CHUNK")
        return {name: getattr(self, name) for name in names}


def power_of_two(value: int) -> int:
    """Return the power of two at or above ``value``."""
    return 1 << (value - 1).bit_length()


def ceil(value: int, by: int) -> int:
    """Divide, rounding up."""
    return -(-value // by)


def workspace(rows: int, top_k: int, experts: int, device: torch.device) -> Tensor | None:
    """Allocate what two launches pass on; None if one launch is enough."""
    if rows * top_k <= ONE_LAUNCH_SLOTS:
        return None
    padded = max(32, power_of_two(experts))
    return torch.empty(MOST_SHARES * (padded + 4), dtype=torch.int32, device=device)


def launch(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    table: LayerTable,
    options: Options,
    new_ids: Tensor,
    new_weights: Tensor,
    counts: Tensor,
    add: bool,
    scratch: Tensor | None = None,
) -> None:
    """Re-route into preallocated, contiguous tensors.

    Args:
        ids: Experts, shape [T, K], int32 or int64, contiguous, as all that follow.
        weights: Weights, shape [T, K].
        kinds: Row kinds, shape [T], or None.
        table: The layer's table.
        options: The parameters.
        new_ids: Written; must not share memory with ``ids``.
        new_weights: Written; must not share memory with ``weights``.
        counts: Counters, int64: shape [len(FIELDS)], overwritten; or [3, len(FIELDS)], added to.
        add: Which of the two.
        scratch: What :func:`workspace` made for at least as many rows; None allocates.

    """
    rows, top_k = ids.shape
    shape = Shape.of(rows, top_k, table.num_experts, table.order.shape[1])
    top_s, floor, merge, redirect = options.resolved(top_k)
    flags = {"HAS_KINDS": kinds is not None, "EVERYONE": options.everyone, "ADD": add}
    late = {"STRIDE": shape.STRIDE, "CHUNK": shape.CHUNK, "MERGE": merge, "REDIRECT": redirect}
    early: dict[str, Any] = {
        **shape.constants(),
        **flags,
        "num_warps": shape.warps,
        "enable_fp_fusion": False,
    }
    types = ids if kinds is None else kinds
    if rows * top_k <= ONE_LAUNCH_SLOTS:
        from sere.kernels.gpu_reroute import reroute_kernel

        reroute_kernel[(1,)](
            ids, weights, types, table.order, new_ids, new_weights, counts, rows, top_s, floor, **early | late
        )
        return
    from sere.kernels.gpu_large import rewrite_kernel, shares_kernel

    shared = workspace(rows, top_k, table.num_experts, ids.device) if scratch is None else scratch
    share = ceil(ceil(rows, MOST_SHARES), shape.BT) * shape.BT
    shares = ceil(rows, share)
    first = {name: value for name, value in early.items() if name not in late}
    shares_kernel[(shares,)](ids, weights, types, shared, counts, rows, share, **first)
    rewrite_kernel[(ceil(rows, shape.BT),)](
        ids,
        weights,
        types,
        table.order,
        shared,
        new_ids,
        new_weights,
        counts,
        rows,
        shares,
        top_s,
        floor,
        **early | late,
    )
