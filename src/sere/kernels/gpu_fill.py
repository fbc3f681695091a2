"""Pieces of the second family in Triton: fill the active set up by totals, and a block of rows from it."""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,import-not-found,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from sere.kernels.gpu_rows import eligible_rows, load_kinds, load_slots, look_up, rank_slots


@triton.jit
def router_mass(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    scores_ptr: tl.tensor,
    rows: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
    HAS_KINDS: tl.constexpr,
    EVERYONE: tl.constexpr,
) -> tl.tensor:
    """Sum of the voting rows' absolute scores, [EP], in float64, rounded to float32."""
    expert = tl.arange(0, EP)
    total = tl.zeros([EP], tl.float64)
    for start in range(0, rows, BT):
        row = start + tl.arange(0, BT)
        _, _, usable = load_slots(ids_ptr, weights_ptr, row, rows, K, KP, E)
        kinds = load_kinds(kinds_ptr, row, rows, HAS_KINDS)
        voting = (tl.max(usable.to(tl.int32), 1) > 0) & eligible_rows(kinds, EVERYONE)
        inside = voting[:, None] & (expert < E)[None, :]
        scores = tl.load(scores_ptr + row[:, None] * E + expert[None, :], mask=inside, other=0.0)
        total += tl.sum(tl.abs(scores.to(tl.float64)), 0)
    return total.to(tl.float32)


@triton.jit
def fill_up(total: tl.tensor, forced: tl.tensor, size: tl.tensor, EP: tl.constexpr) -> tl.tensor:
    """Add experts by falling total, ties to the lowest id, only totals above 0, up to ``size``; [EP]."""
    expert = tl.arange(0, EP)
    # A NaN is no total; nor is that of an expert that is active in any case.
    total = tl.where((total > 0) & ~forced, total, 0.0)
    place = tl.zeros([EP], tl.int32)
    for start in range(0, EP, 16):
        other = start + tl.arange(0, 16)
        theirs = tl.gather(total, other, 0)[None, :]
        ahead = (theirs > total[:, None]) | ((theirs == total[:, None]) & (other[None, :] < expert[:, None]))
        place += tl.sum(ahead.to(tl.int32), 1)
    room = size - tl.sum(forced.to(tl.int32), 0)
    return forced | ((place < room) & (total > 0))


@triton.jit
def hand_out(
    names: tl.tensor,
    rank: tl.tensor,
    open_slots: tl.tensor,
    likes: tl.tensor,
    K: tl.constexpr,
    EP: tl.constexpr,
) -> tl.tensor:
    """Give open slots, heaviest first, the best expert left in ``likes`` [BT, EP]; -inf is none.

    Returns the new names, and the slots that got one.
    """
    expert = tl.arange(0, EP)[None, :]
    found = open_slots & (rank < 0)
    turn = tl.min(tl.min(tl.where(open_slots, rank, K), 1), 0)
    last = tl.max(tl.max(tl.where(open_slots, rank, -1), 1), 0)
    while turn <= last:
        mine = open_slots & (rank == turn)
        there = tl.max(mine.to(tl.int32), 1)[:, None] > 0
        best = tl.max(likes, 1)[:, None]
        pick = tl.min(tl.where((likes == best) & (likes > float("-inf")), expert, EP), 1)[:, None]
        given = mine & (pick < EP)
        names = tl.where(given, pick, names)
        found = found | given
        likes = tl.where(there & (expert == pick), float("-inf"), likes)
        turn += 1
    return names, found


@triton.jit
def settle(
    names: tl.tensor, rank: tl.tensor, valid: tl.tensor, gone: tl.tensor, K: tl.constexpr
) -> tl.tensor:
    """Point removed slots at their row's heaviest other one; a row without another keeps its heaviest.

    Returns names and removed slots.
    """
    bare = tl.max((valid & ~gone).to(tl.int32), 1)[:, None] == 0
    gone = gone & ~(bare & (rank == 0))
    left = valid & ~gone
    first = tl.min(tl.where(left, rank, K), 1)[:, None]
    anchor = tl.sum(tl.where(left & (rank == first), names, 0), 1)[:, None]
    return tl.where(gone, anchor, names), gone


@triton.jit
def row_sums(values: tl.tensor, slots: tl.tensor) -> tl.tensor:
    """Sum of every row's slots, [BT, 1], in float64, rounded to float32."""
    return tl.sum(tl.where(slots, values.to(tl.float64), 0.0), 1).to(tl.float32)[:, None]


@triton.jit
def fill_block(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    likes_ptr: tl.tensor,
    scores_ptr: tl.tensor,
    new_ids_ptr: tl.tensor,
    new_weights_ptr: tl.tensor,
    active: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
    HAS_KINDS: tl.constexpr,
    EVERYONE: tl.constexpr,
    RENORMALISE: tl.constexpr,
) -> tl.tensor:
    """Fill the rows ``row`` from ``active`` [EP] and write them.

    Returns names, the slots that load them, both [BT, KP], and how many slots changed.
    """
    expert, slot = tl.arange(0, EP)[None, :], tl.arange(0, KP)[None, :]
    ids, weights, usable = load_slots(ids_ptr, weights_ptr, row, rows, K, KP, E)
    kinds = load_kinds(kinds_ptr, row, rows, HAS_KINDS)
    rank = rank_slots(ids_ptr, weights_ptr, row, rows, ids, weights, K, KP, E)
    valid = usable & (kinds != 2)[:, None]
    voting = valid & eligible_rows(kinds, EVERYONE)[:, None]
    old = tl.where(valid, ids, 0).to(tl.int32)
    open_slots = voting & (look_up(active.to(tl.int32), ids, valid, BT, KP) == 0)

    scores = row[:, None] * E
    inside = (row < rows)[:, None] & (expert < E) & active[None, :]
    likes = tl.load(likes_ptr + scores + expert, mask=inside, other=float("-inf"))
    likes = tl.where(likes == likes, likes, float("-inf"))
    for other in range(K):
        name = tl.load(ids_ptr + row * K + other, mask=row < rows, other=-1)[:, None]
        weight = tl.load(weights_ptr + row * K + other, mask=row < rows, other=0.0).to(tl.float32)[:, None]
        likes = tl.where((expert == name) & ((weight > 0) | (weight < 0)), float("-inf"), likes)
    names, found = hand_out(old, rank, open_slots, likes, K, EP)
    names, gone = settle(names, rank, valid, open_slots & ~found, K)

    touched = found | gone
    changed = voting & (tl.max(touched.to(tl.int32), 1) > 0)[:, None]
    full = row_sums(weights, changed)
    raw = row_sums(tl.load(scores_ptr + scores + old, mask=changed, other=0.0), changed)
    scale = tl.where(raw != 0, tl.div_rn(full, raw), 0.0)
    new = tl.load(scores_ptr + scores + names, mask=found, other=0.0) * scale
    new = tl.where(found, new, tl.where(gone, 0.0, weights))
    if RENORMALISE:
        total = row_sums(new, changed)
        new = new * tl.where(total != 0, tl.div_rn(full, total), 1.0)
        touched = changed
    inside = (row < rows)[:, None] & (slot < K)
    offset = row[:, None] * K + slot
    tl.store(new_ids_ptr + offset, tl.where(voting, names.to(ids.dtype), ids), mask=inside)
    same = tl.load(weights_ptr + offset, mask=inside, other=0.0)
    tl.store(new_weights_ptr + offset, tl.where(touched, new.to(same.dtype), same), mask=inside)
    moved = tl.sum(tl.sum((found | gone).to(tl.int32), 1), 0)
    return names, valid & ~gone, moved


@triton.jit
def redirect(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    kinds_ptr: tl.tensor,
    new_ids_ptr: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    least: tl.tensor,
    E: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BT: tl.constexpr,
) -> None:
    """Point the usable slots of padding rows at expert ``least``."""
    slot = tl.arange(0, KP)[None, :]
    ids, _, usable = load_slots(ids_ptr, weights_ptr, row, rows, K, KP, E)
    padding = load_kinds(kinds_ptr, row, rows, True) == 2
    lowest = (tl.zeros([BT, KP], tl.int32) + least).to(ids.dtype)
    tl.store(new_ids_ptr + row[:, None] * K + slot, lowest, mask=usable & padding[:, None])
