"""Pieces of the Triton kernels that look at experts: substitutes, rewritten slots, counters."""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,import-not-found,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from sere.kernels.gpu_rows import look_up


@triton.jit
def find_targets(
    order_ptr: tl.tensor,
    active: tl.tensor,
    needed: tl.tensor,
    E: tl.constexpr,
    EP: tl.constexpr,
    STRIDE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> tl.tensor:
    """Where each expert's slots go, [EP], int32: to itself, or to its first active substitute.

    All secondary experts walk down their rows of the order together, CHUNK entries a turn; a row that
    names its own expert has come to its end. One turn is the rule.
    """
    expert = tl.arange(0, EP)
    column = tl.arange(0, CHUNK)
    target = expert
    start = 0
    while (start < E) & (tl.max(needed.to(tl.int32), 0) > 0):
        place = expert[:, None] * STRIDE + start + column[None, :]
        names = tl.load(order_ptr + place, mask=needed[:, None], other=0).to(tl.int32)
        flags = tl.gather(active.to(tl.int32), tl.reshape(names, [EP * CHUNK]), 0)
        hit = (tl.reshape(flags, [EP, CHUNK]) > 0) & needed[:, None]
        # The place above the name: the least of these is the first hit.
        first = tl.min(tl.where(hit, column[None, :] * 65536 + names, 2147483647), 1)
        found = first < 2147483647
        ended = tl.max((names == expert[:, None]).to(tl.int32), 1) > 0
        target = tl.where(found, first & 65535, target)
        needed = needed & ~found & ~ended
        start += CHUNK
    return target


@triton.jit
def merge_slots(
    weights: tl.tensor, rank: tl.tensor, live: tl.tensor, names: tl.tensor, K: tl.constexpr
) -> tl.tensor:
    """Sum a row's live slots on one expert into the heaviest, in falling weight, in float32.

    Returns the sums, the slots emptied, and the slots that share an expert, all [BT, KP].
    """
    total = tl.zeros_like(weights)
    sharers = tl.zeros_like(rank)
    earlier = tl.zeros_like(rank)
    for turn in range(K):
        mine = live & (rank == turn)
        there = tl.max(mine.to(tl.int32), 1)[:, None]
        name = tl.sum(tl.where(mine, names, 0), 1)[:, None]
        weight = tl.sum(tl.where(mine, weights, 0.0), 1)[:, None]
        same = live & (there > 0) & (names == name)
        total = total + tl.where(same, weight, 0.0)
        sharers += same.to(tl.int32)
        earlier += (same & (rank > turn)).to(tl.int32)
    emptied = earlier > 0
    return tl.where(emptied, 0.0, total), emptied, sharers > 1


@triton.jit
def rewrite(
    ids: tl.tensor,
    weights: tl.tensor,
    rank: tl.tensor,
    usable: tl.tensor,
    valid: tl.tensor,
    voting: tl.tensor,
    target: tl.tensor,
    lowest: tl.tensor,
    BT: tl.constexpr,
    KP: tl.constexpr,
    K: tl.constexpr,
    MERGE: tl.constexpr,
    REDIRECT: tl.constexpr,
) -> tl.tensor:
    """Return new ids and float32 weights, which slots' weights are new, and how many slots changed.

    ``lowest`` is the least expert that the step loads, or -1.
    """
    names = look_up(target, ids, valid, BT, KP)
    old = tl.where(valid, ids, 0).to(tl.int32)
    names = tl.where(voting, names, old)
    changed = names != old
    summed = weights
    renewed = tl.zeros_like(weights) > 0
    if MERGE:
        summed, emptied, renewed = merge_slots(weights, rank, voting, names, K)
        changed = changed | emptied
    new_ids = tl.where(voting, names.to(ids.dtype), ids)
    if REDIRECT:
        new_ids = tl.where(usable & ~valid & (lowest >= 0), lowest.to(ids.dtype), new_ids)
    return new_ids, summed, renewed, tl.sum(tl.sum(changed.to(tl.int32), 1), 0)


@triton.jit
def put_counts(
    counts_ptr: tl.tensor,
    before: tl.tensor,
    decode: tl.tensor,
    prefill: tl.tensor,
    slots: tl.tensor,
    moved: tl.tensor,
    after: tl.tensor,
    ADD: tl.constexpr,
    WITH_MOVED: tl.constexpr,
) -> None:
    """Write the counters in the order of ``sere.routing.FIELDS``, or add to them, as one vector."""
    field = tl.arange(0, 8)
    value = tl.where(field == 0, (before > 0).to(tl.int32), after)
    value = tl.where(field == 1, decode, value)
    value = tl.where(field == 2, prefill, value)
    value = tl.where(field == 3, slots, value)
    value = tl.where(field == 4, moved, value)
    value = tl.where(field == 5, before, value).to(tl.int64)
    mask = field < 7
    if not WITH_MOVED:
        mask = mask & (field != 4)
    if ADD:
        value += tl.load(counts_ptr + field, mask=mask, other=0)
    tl.store(counts_ptr + field, value, mask=mask)


@triton.jit
def unpack(pair: tl.tensor) -> tl.tensor:
    """Take two counts under 65536 apart that were summed as one number, low half first."""
    return pair & 65535, pair >> 16


@triton.jit
def phase_row(counts_ptr: tl.tensor, decode: tl.tensor, prefill: tl.tensor, ADD: tl.constexpr) -> tl.tensor:
    """Where a step's counters go: its phase's row of the table, or the one row that there is."""
    if ADD:
        counts_ptr += 7 * ((prefill > 0).to(tl.int32) + ((prefill > 0) & (decode > 0)).to(tl.int32))
    return counts_ptr
