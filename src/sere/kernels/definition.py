"""The definition: the pure-torch policy itself, in the shape of the fused operation."""

from __future__ import annotations

import torch
from torch import Tensor

from sere.kernels.table import LayerTable, Options
from sere.routing import LayerStatistics, Policy, RoutingBatch, count
from sere.routing.recipes.sere import sere


def policy_of(options: Options) -> Policy:
    """Build the policy whose parameters these are."""
    phase = "all" if options.everyone else "decode"
    return sere(options.top_s, options.threshold, options.floor, phase, options.merge)  # type: ignore[arg-type]


def reroute(
    ids: Tensor, weights: Tensor, kinds: Tensor | None, table: LayerTable, options: Options
) -> tuple[Tensor, Tensor, Tensor]:
    """Re-route by :meth:`sere.routing.Policy.route` and count by :func:`sere.routing.count`.

    Args:
        ids: Experts, shape [T, K], int32 or int64.
        weights: Weights, shape [T, K], floating.
        kinds: Row kinds, shape [T], or None for decode rows only.
        table: The layer's table.
        options: The parameters.

    Returns:
        Ids and weights of the inputs' shapes and dtypes, which may be the very inputs, and the
        counters, shape [len(FIELDS)], int64.

    """
    batch = RoutingBatch(ids, weights, table.num_experts, kinds)
    layer = LayerStatistics(table.similarity)
    routes = policy_of(options).route(batch, layer, redirect_padding=options.redirect_padding)
    return routes.ids, routes.weights, count(batch, routes)


def add_to(counts: Tensor, step: Tensor) -> None:
    """Add one step's counters to the row of its phase.

    Args:
        counts: Shape [3, len(FIELDS)], int64, changed in place: steps with decode rows only, with
            prefill rows only, with both.
        step: Counters of one step, shape [len(FIELDS)], int64.

    """
    if counts.device.type == "cpu" and not torch.compiler.is_compiling():
        seen = step.numpy()
        counts.numpy()[(2 if seen[1] > 0 else 1) if seen[2] > 0 else 0] += seen
        return
    decode, prefill = step[1] > 0, step[2] > 0
    phase = prefill.long() + (prefill & decode).long()
    counts.index_add_(0, phase.view(1), step.view(1, -1))


def fresh(new: Tensor, old: Tensor) -> Tensor:
    """Copy ``new`` if it is ``old``: an operation must not hand its input back."""
    if new is old or new.data_ptr() == old.data_ptr():
        return new.clone(memory_format=torch.contiguous_format)
    return new.contiguous()
