"""Counters of one layer, by what the step held; kept on the device, copied only when asked for."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from sere.routing import DECODE, FIELDS, PADDING, PREFILL, Routes, RoutingBatch, count
from sere.routing.batch import expert_mask

PHASES: Final = ("decode", "prefill", "mixed")
"""What a step holds besides padding: decode rows only, prefill rows only, or both."""

_DECODE: Final = FIELDS.index("decode_rows")
_PREFILL: Final = FIELDS.index("prefill_rows")

Counts = dict[str, dict[str, int]]
"""Phase to field to value."""


def new_table(device: torch.device) -> Tensor:
    """Empty counters, shape [len(PHASES), len(FIELDS)], int64."""
    return torch.zeros(len(PHASES), len(FIELDS), dtype=torch.int64, device=device)


def add_step(table: Tensor, batch: RoutingBatch, routes: Routes | None) -> None:
    """Add one step to ``table`` in place; nothing waits for the device. No routes: nothing was changed."""
    if table.device.type == "cpu" and batch.kinds is not None and batch.weights.dtype == torch.float32:
        _add_on_host(table, batch, routes, batch.kinds)
        return
    step = count(batch, routes if routes is not None else unchanged(batch))
    prefill = step[_PREFILL] > 0
    phase = prefill.long() + (prefill & (step[_DECODE] > 0)).long()
    table.index_add_(0, phase.view(1), step.view(1, -1))


def read(table: Tensor) -> Counts:
    """Copy a table to the host; this waits for the device."""
    return {
        phase: dict(zip(FIELDS, row, strict=True)) for phase, row in zip(PHASES, table.tolist(), strict=True)
    }


def unchanged(batch: RoutingBatch) -> Routes:
    """Routes of a step in which nothing changes."""
    valid = batch.valid() & ~batch.rows(PADDING).unsqueeze(1)
    return Routes(batch.ids, batch.weights, torch.zeros_like(valid), expert_mask(batch, valid))


def _add_on_host(table: Tensor, batch: RoutingBatch, routes: Routes | None, row_kinds: Tensor) -> None:
    """Count as :func:`sere.routing.count` does; on the CPU numpy calls cost less than torch's."""
    ids, weights, kinds = batch.ids.numpy(), batch.weights.numpy(), row_kinds.numpy()
    valid = (ids >= 0) & (ids < batch.num_experts) & (weights != 0) & ~np.isnan(weights)
    valid &= (kinds != PADDING)[:, None]
    before = np.zeros(batch.num_experts, dtype=np.bool_)
    before[ids[valid]] = True
    distinct = np.count_nonzero(before)
    if not distinct:
        return
    changed, after = 0, int(distinct)
    if routes is not None:
        moved = (routes.ids.numpy() != ids) | routes.empty.numpy()
        changed, after = int(np.count_nonzero(valid & moved)), int(np.count_nonzero(routes.active.numpy()))
    decode, prefill = np.count_nonzero(kinds == DECODE), np.count_nonzero(kinds == PREFILL)
    phase = (2 if decode else 1) if prefill else 0
    table.numpy()[phase] += (1, decode, prefill, np.count_nonzero(valid), changed, distinct, after)
