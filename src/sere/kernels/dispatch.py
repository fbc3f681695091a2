"""Choose a backend by device and dtype, and run it."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Final

import torch
from torch import Tensor

from sere.kernels import backfill_cpu, backfilling, cpu, definition, gpu, gpu_filling, host
from sere.kernels.backfilling import BackfillOptions
from sere.kernels.table import LayerTable, Options
from sere.routing import FIELDS, RouterScores

MOST_EXPERTS: Final = 1024
"""Above, the definition runs."""
MOST_SLOTS: Final = 32
"""Likewise, of a row."""


def backend_name(ids: Tensor, weights: Tensor, experts: int) -> str:
    """Name the backend that will run: ``cpu``, ``triton`` or ``definition``, which also refuses bad input."""
    fits = experts <= MOST_EXPERTS and ids.ndim == 2 and ids.shape == weights.shape
    fits = fits and 0 < ids.shape[1] <= MOST_SLOTS and weights.dtype in host.DTYPES
    if not fits or ids.dtype not in (torch.int32, torch.int64):
        return "definition"
    if ids.device.type == "cpu":
        return "cpu"
    return "triton" if ids.device.type == "cuda" and gpu.available() else "definition"


def run_reroute(
    ids: Tensor, weights: Tensor, kinds: Tensor | None, table: LayerTable, options: Options
) -> tuple[Tensor, Tensor, Tensor]:
    """Run :func:`sere.kernels.reroute`."""
    name = backend_name(ids, weights, table.num_experts)
    if name == "triton":
        ids, weights = ids.contiguous(), weights.contiguous()
        new_ids, new_weights = torch.empty_like(ids), torch.empty_like(weights)
        counts = torch.empty(len(FIELDS), dtype=torch.int64, device=ids.device)
        gpu.launch(ids, weights, kinds, table, options, new_ids, new_weights, counts, add=False)
        return new_ids, new_weights, counts
    backend: ModuleType = cpu if name == "cpu" else definition
    new_ids, new_weights, counts = backend.reroute(ids, weights, kinds, table, options)
    return definition.fresh(new_ids, ids), definition.fresh(new_weights, weights), counts


def run_reroute_into(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    table: LayerTable,
    options: Options,
    new_ids: Tensor,
    new_weights: Tensor,
    counts: Tensor,
    scratch: Tensor | None,
) -> None:
    """Run :func:`sere.kernels.reroute_into`."""
    if backend_name(ids, weights, table.num_experts) == "triton":
        gpu.launch(
            ids, weights, kinds, table, options, new_ids, new_weights, counts, add=True, scratch=scratch
        )
        return
    made = run_reroute(ids, weights, kinds, table, options)
    new_ids.copy_(made[0])
    new_weights.copy_(made[1])
    definition.add_to(counts, made[2])


def run_backfill(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    scores: RouterScores,
    total: Tensor | None,
    options: BackfillOptions,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run :func:`sere.kernels.backfill`."""
    name = backend_name(ids, weights, scores.order.shape[1])
    if name == "triton":
        ids, weights = ids.contiguous(), weights.contiguous()
        new_ids, new_weights = torch.empty_like(ids), torch.empty_like(weights)
        counts = torch.empty(len(FIELDS), dtype=torch.int64, device=ids.device)
        gpu_filling.launch(ids, weights, kinds, scores, total, options, new_ids, new_weights, counts)
        return new_ids, new_weights, counts
    backend = backfill_cpu.backfill if name == "cpu" else backfilling.definition
    new_ids, new_weights, counts = backend(ids, weights, kinds, scores, total, options)
    return definition.fresh(new_ids, ids), definition.fresh(new_weights, weights), counts


def run_backfill_into(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    scores: RouterScores,
    total: Tensor | None,
    options: BackfillOptions,
    new_ids: Tensor,
    new_weights: Tensor,
    counts: Tensor,
    held: Tensor | None,
) -> None:
    """Run :func:`sere.kernels.backfill_into`."""
    if backend_name(ids, weights, scores.order.shape[1]) == "triton":
        gpu_filling.launch(
            ids, weights, kinds, scores, total, options, new_ids, new_weights, counts, held, add=True
        )
        return
    if held is not None:
        top_s, floor, size = held.tolist()
        options = replace(options, top_s=top_s, floor=floor, size=size)
    made = run_backfill(ids, weights, kinds, scores, total, options)
    new_ids.copy_(made[0])
    new_weights.copy_(made[1])
    definition.add_to(counts, made[2])
