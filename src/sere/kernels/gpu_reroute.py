"""SERE in one launch: one program does a whole layer of a decode-sized step."""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,import-not-found,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from sere.kernels.gpu_experts import find_targets, phase_row, put_counts, rewrite, unpack
from sere.kernels.gpu_rows import census, classes, eligible_rows, load_kinds, load_slots, rank_slots


@triton.jit
def take_census(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    rows: tl.tensor,
    top_s: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
    HAS_KINDS: tl.constexpr,
    EVERYONE: tl.constexpr,
) -> tl.tensor:
    """Count all rows' slots by expert, primary and other ones apart; decode and prefill rows."""
    primary = tl.zeros([EP], tl.int32)
    others = tl.zeros([EP], tl.int32)
    kinds_seen = tl.zeros([BT], tl.int32)
    for start in range(0, rows, BT):
        row = start + tl.arange(0, BT)
        ids, weights, usable = load_slots(ids_ptr, weights_ptr, row, rows, K, KP, E)
        kinds = load_kinds(kinds_ptr, row, rows, HAS_KINDS)
        rank = rank_slots(ids_ptr, weights_ptr, row, rows, ids, weights, K, KP, E)
        # Slots of rows that stay as they are count as if they were in the top-S.
        chosen = (rank < top_s) | ~eligible_rows(kinds, EVERYONE)[:, None]
        valid = usable & (kinds != 2)[:, None]
        rest, top = census(classes(ids, valid, chosen), BT * KP, EP)
        primary += top
        others += rest
        kinds_seen += tl.where(kinds == 0, 1, tl.where(kinds == 1, 65536, 0))
    decode, prefill = unpack(tl.sum(kinds_seen, 0))
    return primary, others, decode, prefill


@triton.jit
def primary_set(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    rows: tl.tensor,
    top_s: tl.tensor,
    floor: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
    HAS_KINDS: tl.constexpr,
    EVERYONE: tl.constexpr,
) -> tl.tensor:
    """Take a census, and another one with a larger S until the floor is met: once is the rule.

    Returns primary and other slots by expert, the experts that any row names, and counts of rows.
    """
    primary = tl.zeros([EP], tl.int32)
    others = tl.zeros([EP], tl.int32)
    decode = tl.zeros_like(rows + 0)
    prefill = tl.zeros_like(rows + 0)
    size = tl.zeros_like(rows + 0)
    before = tl.zeros_like(rows + 0)
    first = size == 0
    while first | ((size < floor) & (size < before) & (top_s <= K)):
        primary, others, decode, prefill = take_census(
            ids_ptr, weights_ptr, kinds_ptr, rows, top_s, E, EP, K, KP, BT, HAS_KINDS, EVERYONE
        )
        sizes = ((primary + others) > 0).to(tl.int32) + tl.where(primary > 0, 65536, 0)
        before, size = unpack(tl.sum(sizes, 0))
        # If all that are named are not more than the floor, growing S ends with all of them.
        top_s = tl.where((before <= floor) & (top_s < K), K, top_s + 1)
        first = first & (size < 0)
    return primary, others, before, decode, prefill


@triton.jit(do_not_specialize=["rows", "top_s", "floor"])
def reroute_kernel(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    order_ptr: tl.tensor,
    new_ids_ptr: tl.tensor,
    new_weights_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    rows: tl.tensor,
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
    """Read every slot twice, a few entries of the order once, write every slot once."""
    primary, others, before, decode, prefill = primary_set(
        ids_ptr, weights_ptr, kinds_ptr, rows, top_s, floor, E, EP, K, KP, BT, HAS_KINDS, EVERYONE
    )
    slots = tl.sum(primary + others, 0)
    routed = (primary + others) > 0
    active = primary > 0
    target = find_targets(order_ptr, active, routed & ~active, E, EP, STRIDE, CHUNK)
    expert = tl.arange(0, EP)
    loaded = active | (routed & (target == expert))
    least = tl.min(tl.where(loaded, expert, EP), 0)
    lowest = tl.where(least < EP, least, -1)

    moved = tl.zeros_like(rows + 0)
    for start in range(0, rows, BT):
        row = start + tl.arange(0, BT)
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
        moved += changed
        slot = tl.arange(0, KP)
        inside = (row < rows)[:, None] & (slot < K)[None, :]
        offset = row[:, None] * K + slot[None, :]
        tl.store(new_ids_ptr + offset, new_ids, mask=inside)
        same = tl.load(weights_ptr + offset, mask=inside, other=0.0)
        kept = tl.where(renewed, summed.to(same.dtype), same)
        tl.store(new_weights_ptr + offset, kept, mask=inside)

    counts_ptr = phase_row(counts_ptr, decode, prefill, ADD)
    after = tl.sum(loaded.to(tl.int32), 0)
    put_counts(counts_ptr, before, decode, prefill, slots, moved, after, ADD, True)
