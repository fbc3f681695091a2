"""The second family in Triton: one program does a whole layer."""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,import-not-found,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from sere.kernels.gpu_experts import phase_row, put_counts
from sere.kernels.gpu_fill import fill_block, fill_up, redirect, router_mass
from sere.kernels.gpu_reroute import primary_set
from sere.kernels.gpu_rows import census, classes


@triton.jit
def active_set(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    scores_ptr: tl.tensor,
    total_ptr: tl.tensor,
    rows: tl.tensor,
    top_s: tl.tensor,
    floor: tl.tensor,
    size: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
    SLOT_ROWS: tl.constexpr,
    HAS_KINDS: tl.constexpr,
    EVERYONE: tl.constexpr,
    TOTAL: tl.constexpr,
) -> tl.tensor:
    """Return the experts that stay, [EP]; distinct experts before, decode rows, prefill rows, slots."""
    primary, others, before, decode, prefill = primary_set(
        ids_ptr, weights_ptr, kinds_ptr, rows, top_s, floor, E, EP, K, KP, SLOT_ROWS, HAS_KINDS, EVERYONE
    )
    slots = tl.sum(primary + others, 0)
    active = primary > 0
    expert = tl.arange(0, EP)
    if TOTAL == 1:
        active = fill_up(tl.load(total_ptr + expert, mask=expert < E, other=0.0), active, size, EP)
    if TOTAL == 2:
        total = router_mass(
            ids_ptr, weights_ptr, kinds_ptr, scores_ptr, rows, E, EP, K, KP, BT, HAS_KINDS, EVERYONE
        )
        active = fill_up(total, active, size, EP)
    return active, before, decode, prefill, slots


@triton.jit(do_not_specialize=["rows", "top_s", "floor", "size"])
def backfill_kernel(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    likes_ptr: tl.tensor,
    scores_ptr: tl.tensor,
    total_ptr: tl.tensor,
    held_ptr: tl.tensor,
    new_ids_ptr: tl.tensor,
    new_weights_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    rows: tl.tensor,
    top_s: tl.tensor,
    floor: tl.tensor,
    size: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
    SLOT_ROWS: tl.constexpr,
    HAS_KINDS: tl.constexpr,
    EVERYONE: tl.constexpr,
    RENORMALISE: tl.constexpr,
    REDIRECT: tl.constexpr,
    TOTAL: tl.constexpr,
    HELD: tl.constexpr,
    ADD: tl.constexpr,
) -> None:
    """See :func:`sere.kernels.backfilling.definition`."""
    if HELD:
        top_s = tl.load(held_ptr)
        floor = tl.load(held_ptr + 1)
        size = tl.load(held_ptr + 2)
    active, before, decode, prefill, slots = active_set(
        ids_ptr,
        weights_ptr,
        kinds_ptr,
        scores_ptr,
        total_ptr,
        rows,
        top_s,
        floor,
        size,
        E,
        EP,
        K,
        KP,
        BT,
        SLOT_ROWS,
        HAS_KINDS,
        EVERYONE,
        TOTAL,
    )
    named = tl.zeros([EP], tl.int32)
    moved = tl.zeros_like(rows + 0)
    for start in range(0, rows, BT):
        row = start + tl.arange(0, BT)
        names, loading, changed = fill_block(
            ids_ptr,
            weights_ptr,
            kinds_ptr,
            likes_ptr,
            scores_ptr,
            new_ids_ptr,
            new_weights_ptr,
            active,
            row,
            rows,
            E,
            EP,
            K,
            KP,
            BT,
            HAS_KINDS,
            EVERYONE,
            RENORMALISE,
        )
        moved += changed
        _, there = census(classes(names, loading, loading), BT * KP, EP)
        named += there

    loaded = named > 0
    least = tl.min(tl.where(loaded, tl.arange(0, EP), EP), 0)
    if REDIRECT and HAS_KINDS:
        # Threads may write slots that others wrote above.
        tl.debug_barrier()
        for start in range(0, tl.where((least < EP) & (top_s < K), rows, 0), SLOT_ROWS):
            row = start + tl.arange(0, SLOT_ROWS)
            redirect(ids_ptr, weights_ptr, kinds_ptr, new_ids_ptr, row, rows, least, E, K, KP, SLOT_ROWS)
    counts_ptr = phase_row(counts_ptr, decode, prefill, ADD)
    after = tl.sum(loaded.to(tl.int32), 0)
    put_counts(counts_ptr, before, decode, prefill, slots, moved, after, ADD, True)
