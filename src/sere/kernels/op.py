"""``torch.ops.sere.reroute_fused`` and its kin: opaque to compilers, one backend by device.

The name is not ``sere::reroute``, which the vLLM plugin registers for its layers. Python that no
compiler traces calls :func:`reroute` and skips the dispatcher.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from sere.kernels.backfilling import BackfillOptions
from sere.kernels.dispatch import run_backfill, run_backfill_into, run_reroute, run_reroute_into
from sere.kernels.table import LayerTable, Options
from sere.routing import FIELDS, RouterScores

_OPTIONS: Final = "int top_s, float threshold, int? floor, bool everyone, bool merge, bool redirect_padding"
_INPUTS: Final = f"Tensor ids, Tensor weights, Tensor? kinds, Tensor similarity, Tensor order, {_OPTIONS}"
_BACKFILL: Final = (
    "Tensor ids, Tensor weights, Tensor? kinds, Tensor order, Tensor weight, Tensor? total, int top_s, "
    "int? floor, int size, bool renormalise, bool everyone, bool redirect_padding"
)


def reroute(
    ids: Tensor, weights: Tensor, kinds: Tensor | None, table: LayerTable, options: Options
) -> tuple[Tensor, Tensor, Tensor]:
    """Re-route one layer's step by SERE into fresh tensors; nothing waits for the device.

    Args:
        ids: Experts, shape [T, K], int32 or int64; any value is safe.
        weights: Weights, shape [T, K], float32, bfloat16 or float16.
        kinds: Row kinds, shape [T], any integer dtype, or None for decode rows only.
        table: The layer's table, cut at ``options.threshold``, on the same device.
        options: The parameters.

    Returns:
        Ids, weights, and counters of shape [len(FIELDS)], int64.

    """
    if torch.compiler.is_compiling():
        result: tuple[Tensor, Tensor, Tensor] = torch.ops.sere.reroute_fused(
            ids, weights, kinds, table.similarity, table.order, *_flat(options)
        )
        return result
    return run_reroute(ids, weights, kinds, table, options)


def reroute_into(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    table: LayerTable,
    options: Options,
    new_ids: Tensor,
    new_weights: Tensor,
    counts: Tensor,
    scratch: Tensor | None = None,
) -> None:
    """Re-route into preallocated tensors, as a captured graph wants it; on a GPU nothing is allocated.

    Args:
        ids: As :func:`reroute`, and the four that follow; contiguous.
        weights: Weights.
        kinds: Row kinds.
        table: The layer's table.
        options: The parameters.
        new_ids: Written; shape and dtype of ``ids``, contiguous, sharing no memory with it.
        new_weights: Written likewise.
        counts: Counters by phase, shape [3, len(FIELDS)], int64; the step is added.
        scratch: What :func:`sere.kernels.gpu.workspace` made, for steps too large for one launch.

    """
    if torch.compiler.is_compiling():
        torch.ops.sere.reroute_fused_into(
            ids,
            weights,
            kinds,
            table.similarity,
            table.order,
            *_flat(options),
            new_ids,
            new_weights,
            counts,
            scratch,
        )
        return
    run_reroute_into(ids, weights, kinds, table, options, new_ids, new_weights, counts, scratch)


def backfill(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    scores: RouterScores,
    total: Tensor | None,
    options: BackfillOptions,
) -> tuple[Tensor, Tensor, Tensor]:
    """Re-route by the second family into fresh tensors; see :func:`sere.kernels.backfilling.definition`."""
    if torch.compiler.is_compiling():
        result: tuple[Tensor, Tensor, Tensor] = torch.ops.sere.backfill_fused(
            ids, weights, kinds, scores.order, scores.weight, total, *_flat(options)
        )
        return result
    return run_backfill(ids, weights, kinds, scores, total, options)


def backfill_into(
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
) -> None:
    """Re-route by the second family into preallocated tensors, as a captured graph wants it.

    Args:
        ids: As :func:`backfill`, and the five that follow; contiguous.
        weights: Weights.
        kinds: Row kinds.
        scores: The router's scores of all experts.
        total: What a size is filled up by.
        options: The parameters.
        new_ids: Written; shape and dtype of ``ids``, contiguous, sharing no memory with it.
        new_weights: Written likewise.
        counts: Counters by phase, shape [3, len(FIELDS)], int64; the step is added.
        held: S, floor and size as :meth:`BackfillOptions.resolved` gives them, shape [3], int32, that take
            the options' place where the step runs, so that a captured graph follows them; or None.

    """
    if torch.compiler.is_compiling():
        torch.ops.sere.backfill_fused_into(
            ids,
            weights,
            kinds,
            scores.order,
            scores.weight,
            total,
            *_flat(options),
            new_ids,
            new_weights,
            counts,
            held,
        )
        return
    run_backfill_into(ids, weights, kinds, scores, total, options, new_ids, new_weights, counts, held)


def _flat(options: Options | BackfillOptions) -> tuple[Any, ...]:
    return tuple(getattr(options, name) for name in options.__dataclass_fields__)


def _register() -> Any:
    make: Any = torch.library.Library
    library: Any = make("sere", "FRAGMENT")
    written = "Tensor(a!) new_ids, Tensor(b!) new_weights, Tensor(c!) counts, Tensor(d!)? scratch"
    library.define(f"reroute_fused({_INPUTS}) -> (Tensor, Tensor, Tensor)")
    library.define(f"reroute_fused_into({_INPUTS}, {written}) -> ()")
    library.define(f"backfill_fused({_BACKFILL}) -> (Tensor, Tensor, Tensor)")
    written = "Tensor(a!) new_ids, Tensor(b!) new_weights, Tensor(c!) counts, Tensor? held"
    library.define(f"backfill_fused_into({_BACKFILL}, {written}) -> ()")

    def functional(ids: Any, weights: Any, kinds: Any, similarity: Any, order: Any, *rest: Any) -> Any:
        options = Options(*rest)
        return run_reroute(ids, weights, kinds, LayerTable(similarity, order, options.threshold), options)

    def into(ids: Any, weights: Any, kinds: Any, similarity: Any, order: Any, *rest: Any) -> None:
        options = Options(*rest[:6])
        table = LayerTable(similarity, order, options.threshold)
        run_reroute_into(ids, weights, kinds, table, options, *rest[6:])

    def filled(ids: Any, weights: Any, kinds: Any, order: Any, weight: Any, total: Any, *rest: Any) -> Any:
        scores = RouterScores(order, weight)
        return run_backfill(ids, weights, kinds, scores, total, BackfillOptions(*rest))

    def filled_into(
        ids: Any, weights: Any, kinds: Any, order: Any, weight: Any, total: Any, *rest: Any
    ) -> None:
        scores, options = RouterScores(order, weight), BackfillOptions(*rest[:6])
        run_backfill_into(ids, weights, kinds, scores, total, options, *rest[6:])

    def fake(ids: Any, weights: Any, *_: Any) -> Any:
        counts = ids.new_empty((len(FIELDS),), dtype=torch.int64)
        return ids.new_empty(ids.shape), weights.new_empty(weights.shape), counts

    for name, run in (
        ("reroute_fused", functional),
        ("reroute_fused_into", into),
        ("backfill_fused", filled),
        ("backfill_fused_into", filled_into),
    ):
        library.impl(name, run, "CompositeExplicitAutograd")
        library._register_fake(name, (lambda *_: None) if name.endswith("_into") else fake)
    return library


LIBRARY: Final = _register()
"""Keeps the registration alive."""
