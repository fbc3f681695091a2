"""SERE in two launches, for steps that one program would take too long over.

The first launch sums up a share of the rows a program: each expert's best place. The second has a
program for each block of rows; each finds the same active set from the shares and rewrites its rows.
"""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,import-not-found,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from sere.kernels.gpu_experts import find_targets, phase_row, put_counts, rewrite
from sere.kernels.gpu_rows import census, classes, eligible_rows, load_kinds, load_slots, rank_slots

META: tl.constexpr = tl.constexpr(4)
"""Numbers beside the experts' places in a share: decode rows, prefill rows, valid slots, unused."""


@triton.jit(do_not_specialize=["rows", "share"])
def shares_kernel(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    shares_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    rows: tl.tensor,
    share: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
    HAS_KINDS: tl.constexpr,
    EVERYONE: tl.constexpr,
    ADD: tl.constexpr,
) -> None:
    """Write, for ``share`` rows a program, the best place of each expert; K where nobody names it."""
    program = tl.program_id(0)
    end = tl.minimum(rows, (program + 1) * share)
    best = tl.full([EP], K, tl.int32)
    decode = tl.zeros([BT], tl.int32)
    prefill = tl.zeros([BT], tl.int32)
    slots = tl.zeros([BT], tl.int32)
    for start in range(program * share, end, BT):
        row = start + tl.arange(0, BT)
        ids, weights, usable = load_slots(ids_ptr, weights_ptr, row, end, K, KP, E)
        kinds = load_kinds(kinds_ptr, row, end, HAS_KINDS)
        rank = rank_slots(ids_ptr, weights_ptr, row, end, ids, weights, K, KP, E)
        # Rows that stay as they are make their experts primary whatever S is.
        rank = tl.where(eligible_rows(kinds, EVERYONE)[:, None], rank, 0)
        valid = usable & (kinds != 2)[:, None]
        for place in range(K):
            _, there = census(classes(ids, valid, rank == place), BT * KP, EP)
            best = tl.where((there > 0) & (place < best), place, best)
        decode += (kinds == 0).to(tl.int32)
        prefill += (kinds == 1).to(tl.int32)
        slots += tl.sum(valid.to(tl.int32), 1)
    base = shares_ptr + program * (EP + META)
    tl.store(base + META + tl.arange(0, EP), best)
    tl.store(base, tl.sum(decode, 0))
    tl.store(base + 1, tl.sum(prefill, 0))
    tl.store(base + 2, tl.sum(slots, 0))
    if not ADD and program == 0:
        # The second launch adds to this field from many programs.
        tl.store(counts_ptr + 4, tl.zeros([], tl.int64))


@triton.jit(do_not_specialize=["rows", "shares", "top_s", "floor"])
def rewrite_kernel(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    order_ptr: tl.tensor,
    shares_ptr: tl.tensor,
    new_ids_ptr: tl.tensor,
    new_weights_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    rows: tl.tensor,
    shares: tl.tensor,
    top_s: tl.tensor,
    floor: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
    STRIDE: tl.constexpr,
    CHUNK: tl.constexpr,
    HAS_KINDS: tl.constexpr,
    EVERYONE: tl.constexpr,
    MERGE: tl.constexpr,
    REDIRECT: tl.constexpr,
    ADD: tl.constexpr,
) -> None:
    """Rewrite one block of rows; the first program also writes the counters."""
    expert = tl.arange(0, EP)
    best = tl.full([EP], K, tl.int32)
    decode = tl.zeros_like(rows + 0)
    prefill = tl.zeros_like(rows + 0)
    slots = tl.zeros_like(rows + 0)
    for each in range(shares):
        base = shares_ptr + each * (EP + META)
        best = tl.minimum(best, tl.load(base + META + expert))
        decode += tl.load(base)
        prefill += tl.load(base + 1)
        slots += tl.load(base + 2)
    routed = best < K
    size = tl.sum((best < top_s).to(tl.int32), 0)
    while (size < floor) & (top_s < K):
        top_s += 1
        size = tl.sum((best < top_s).to(tl.int32), 0)
    active = best < top_s
    target = find_targets(order_ptr, active, routed & ~active, E, EP, STRIDE, CHUNK)
    loaded = active | (routed & (target == expert))
    least = tl.min(tl.where(loaded, expert, EP), 0)
    lowest = tl.where(least < EP, least, -1)

    row = tl.program_id(0) * BT + tl.arange(0, BT)
    ids, weights, usable = load_slots(ids_ptr, weights_ptr, row, rows, K, KP, E)
    kinds = load_kinds(kinds_ptr, row, rows, HAS_KINDS)
    valid = usable & (kinds != 2)[:, None]
    voting = valid & eligible_rows(kinds, EVERYONE)[:, None]
    rank = tl.zeros([BT, KP], tl.int32)
    if MERGE:
        rank = rank_slots(ids_ptr, weights_ptr, row, rows, ids, weights, K, KP, E)
    new_ids, summed, renewed, changed = rewrite(
        ids, weights, rank, usable, valid, voting, target, lowest, BT, KP, K, MERGE, REDIRECT
    )
    slot = tl.arange(0, KP)
    inside = (row < rows)[:, None] & (slot < K)[None, :]
    offset = row[:, None] * K + slot[None, :]
    tl.store(new_ids_ptr + offset, new_ids, mask=inside)
    same = tl.load(weights_ptr + offset, mask=inside, other=0.0)
    tl.store(new_weights_ptr + offset, tl.where(renewed, summed.to(same.dtype), same), mask=inside)

    counts_ptr = phase_row(counts_ptr, decode, prefill, ADD)
    tl.atomic_add(counts_ptr + 4, changed.to(tl.int64))
    if tl.program_id(0) == 0:
        before = tl.sum(routed.to(tl.int32), 0)
        after = tl.sum(loaded.to(tl.int32), 0)
        put_counts(counts_ptr, before, decode, prefill, slots, slots, after, ADD, False)
