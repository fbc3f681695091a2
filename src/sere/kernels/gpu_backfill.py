"""The second family in Triton: one program chooses the active experts and fills every row from them."""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,import-not-found,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from sere.kernels.gpu_experts import put_counts
from sere.kernels.gpu_reroute import primary_set
from sere.kernels.gpu_rows import census, classes, eligible_rows, load_kinds, load_slots, look_up, rank_slots


@triton.jit
def add_preferred(
    preference_ptr: tl.tensor, forced: tl.tensor, budget: tl.tensor, E: tl.constexpr, EP: tl.constexpr
) -> tl.tensor:
    """Fill the forced experts up to the budget by falling preference, ties to the lowest id; [EP]."""
    expert = tl.arange(0, EP)
    mine = tl.load(preference_ptr + expert, mask=expert < E, other=0.0)
    mine = tl.where(mine == mine, mine, float("-inf"))
    place = tl.zeros([EP], tl.int32)
    for start in range(0, EP, 16):
        other = start + tl.arange(0, 16)
        free = tl.gather((~forced).to(tl.int32), other, 0) > 0
        theirs = tl.load(preference_ptr + other, mask=other < E, other=0.0)
        theirs = tl.where(theirs == theirs, theirs, float("-inf"))[None, :]
        ahead = (theirs > mine[:, None]) | ((theirs == mine[:, None]) & (other[None, :] < expert[:, None]))
        ahead = ahead & (free & (other < E))[None, :]
        place += tl.sum(ahead.to(tl.int32), 1)
    room = budget - tl.sum(forced.to(tl.int32), 0)
    return forced | ((place < room) & (expert < E))


@triton.jit
def fill_rows(
    ids: tl.tensor,
    rank: tl.tensor,
    open_slots: tl.tensor,
    valid: tl.tensor,
    scores: tl.tensor,
    free: tl.tensor,
    K: tl.constexpr,
    EP: tl.constexpr,
) -> tl.tensor:
    """Give open slots, by rank, the best expert left of ``free`` [BT, EP]; new ids and removed slots."""
    expert = tl.arange(0, EP)[None, :]
    names = tl.where(valid, ids, 0).to(tl.int32)
    removed = open_slots & (rank < 0)
    for turn in range(K):
        mine = open_slots & (rank == turn)
        there = tl.max(mine.to(tl.int32), 1) > 0
        best = tl.max(tl.where(free, scores, float("-inf")), 1)
        pick = tl.min(tl.where(free & (scores == best[:, None]), expert, EP), 1)
        names = tl.where(mine & (pick < EP)[:, None], pick[:, None], names)
        removed = removed | (mine & (pick == EP)[:, None])
        free = free & ~(there[:, None] & (expert == pick[:, None]))
    left = valid & ~removed
    first = tl.min(tl.where(left, rank, K), 1)
    anchor = tl.sum(tl.where(left & (rank == first[:, None]), names, 0), 1)
    return tl.where(removed, anchor[:, None], names), removed


@triton.jit
def ordered_sum(values: tl.tensor, rank: tl.tensor, live: tl.tensor, K: tl.constexpr) -> tl.tensor:
    """Sum of a row's live values by rank, one after the other, [BT]."""
    total = tl.sum(tl.zeros_like(values), 1)
    for turn in range(K):
        total = total + tl.sum(tl.where(live & (rank == turn), values, 0.0), 1)
    return total


@triton.jit(do_not_specialize=["rows", "top_s", "floor", "budget"])
def backfill_kernel(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    scores_ptr: tl.tensor,
    preference_ptr: tl.tensor,
    new_ids_ptr: tl.tensor,
    new_weights_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    rows: tl.tensor,
    top_s: tl.tensor,
    floor: tl.tensor,
    budget: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
    HAS_KINDS: tl.constexpr,
    EVERYONE: tl.constexpr,
    RENORMALISE: tl.constexpr,
    REDIRECT: tl.constexpr,
) -> None:
    """See :func:`sere.kernels.backfilling.definition`."""
    primary, others, before, decode, prefill = primary_set(
        ids_ptr, weights_ptr, kinds_ptr, rows, top_s, floor, E, EP, K, KP, BT, HAS_KINDS, EVERYONE
    )
    slots = tl.sum(primary + others, 0)
    active = add_preferred(preference_ptr, primary > 0, budget, E, EP)
    expert = tl.arange(0, EP)
    slot = tl.arange(0, KP)
    named = tl.zeros([EP], tl.int32)
    moved = tl.zeros_like(rows + 0)
    for start in range(0, rows, BT):
        row = start + tl.arange(0, BT)
        ids, weights, usable = load_slots(ids_ptr, weights_ptr, row, rows, K, KP, E)
        kinds = load_kinds(kinds_ptr, row, rows, HAS_KINDS)
        rank = rank_slots(ids_ptr, weights_ptr, row, rows, ids, weights, K, KP, E)
        valid = usable & (kinds != 2)[:, None]
        voting = valid & eligible_rows(kinds, EVERYONE)[:, None]
        open_slots = voting & (look_up(active.to(tl.int32), ids, valid, BT, KP) == 0)

        place = row[:, None] * E + expert[None, :]
        scores = tl.load(scores_ptr + place, mask=(row < rows)[:, None] & (expert < E)[None, :], other=0.0)
        scores = tl.where(scores == scores, scores, float("-inf"))
        free = tl.broadcast_to(active[None, :], [BT, EP])
        for other in range(K):
            name = tl.load(ids_ptr + row * K + other, mask=row < rows, other=-1)[:, None]
            heavy = tl.load(weights_ptr + row * K + other, mask=row < rows, other=0.0).to(tl.float32)[:, None]
            free = free & ~((expert[None, :] == name) & ((heavy > 0) | (heavy < 0)))
        names, removed = fill_rows(ids, rank, open_slots, valid, scores, free, K, EP)
        moved += tl.sum(tl.sum(open_slots.to(tl.int32), 1), 0)
        _, there = census(classes(names, valid & ~removed, valid), BT * KP, EP)
        named += there

        result = tl.where(removed, 0.0, weights)
        touched = removed
        if RENORMALISE:
            changed = voting & (tl.max(open_slots.to(tl.int32), 1) > 0)[:, None]
            raw = tl.load(scores_ptr + row[:, None] * E + names, mask=changed & ~removed, other=0.0)
            raw = tl.where(raw == raw, raw, float("-inf"))
            old = ordered_sum(weights, rank, changed, K)
            new = ordered_sum(raw, rank, changed, K)
            sane = (tl.abs(old) < float("inf")) & (tl.abs(new) < float("inf")) & (new != 0)
            scale = tl.div_rn(old, tl.where(sane, new, 1.0))
            result = tl.where(sane[:, None], raw * scale[:, None], result)
            touched = changed
        inside = (row < rows)[:, None] & (slot < K)[None, :]
        offset = row[:, None] * K + slot[None, :]
        tl.store(new_ids_ptr + offset, tl.where(voting, names.to(ids.dtype), ids), mask=inside)
        same = tl.load(weights_ptr + offset, mask=inside, other=0.0)
        tl.store(new_weights_ptr + offset, tl.where(touched, result.to(same.dtype), same), mask=inside)

    loaded = named > 0
    least = tl.min(tl.where(loaded, expert, EP), 0)
    if REDIRECT and HAS_KINDS:
        # Threads may write slots that others wrote above.
        tl.debug_barrier()
        for start in range(0, tl.where(least < EP, rows, 0), BT):
            row = start + tl.arange(0, BT)
            ids, _, usable = load_slots(ids_ptr, weights_ptr, row, rows, K, KP, E)
            kinds = load_kinds(kinds_ptr, row, rows, HAS_KINDS)
            offset = row[:, None] * K + slot[None, :]
            lowest = tl.zeros([BT, KP], tl.int32) + least
            tl.store(new_ids_ptr + offset, lowest.to(ids.dtype), mask=usable & (kinds == 2)[:, None])
    after = tl.sum(loaded.to(tl.int32), 0)
    put_counts(counts_ptr, before, decode, prefill, slots, moved, after, False, True)
