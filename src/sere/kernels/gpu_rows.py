"""Pieces of the Triton kernels that look at rows and slots. Imported only where Triton is installed.

A block is BT rows by KP slots, KP the power of two at or above K; EP is that of E. Slots outside of the
step are not valid. Triton's own words: a program is a group of threads that runs this text once, on
whole blocks of numbers; ``constexpr`` arguments are fixed when it is compiled.
"""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,import-not-found,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_slots(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    K: tl.constexpr,
    KP: tl.constexpr,
    E: tl.constexpr,
) -> tl.tensor:
    """Ids, float32 weights and usable slots (id in range, weight neither 0 nor NaN), all [BT, KP]."""
    slot = tl.arange(0, KP)
    inside = (row < rows)[:, None] & (slot < K)[None, :]
    offset = row[:, None] * K + slot[None, :]
    ids = tl.load(ids_ptr + offset, mask=inside, other=-1)
    weights = tl.load(weights_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    usable = (ids >= 0) & (ids < E) & ((weights > 0) | (weights < 0))
    return ids, weights, usable


@triton.jit
def load_kinds(kinds_ptr: tl.tensor, row: tl.tensor, rows: tl.tensor, HAS_KINDS: tl.constexpr) -> tl.tensor:
    """Kinds of the rows, [BT]; without a tensor all are decode rows; rows past the end are padding."""
    if HAS_KINDS:
        kinds = tl.load(kinds_ptr + row, mask=row < rows, other=2).to(tl.int32)
    else:
        kinds = tl.where(row < rows, 0, 2)
    return kinds


@triton.jit
def eligible_rows(kinds: tl.tensor, EVERYONE: tl.constexpr) -> tl.tensor:
    """Rows that may be re-routed, [BT]."""
    eligible = kinds == 0
    if EVERYONE:
        eligible = eligible | (kinds == 1)
    return eligible


@triton.jit
def rank_slots(
    ids_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    ids: tl.tensor,
    weights: tl.tensor,
    K: tl.constexpr,
    KP: tl.constexpr,
    E: tl.constexpr,
) -> tl.tensor:
    """Place of every slot in its row by falling weight, then rising id, [BT, KP], int32.

    Each slot is compared with the K slots of its row, which are read again one column at a time, from
    the cache: that needs no exchange between threads and no block of BT x K x K numbers. Only usable
    slots are counted; the place of others means nothing.
    """
    slot = tl.arange(0, KP)[None, :]
    rank = tl.zeros_like(weights).to(tl.int32)
    for other in range(K):
        other_id = tl.load(ids_ptr + row * K + other, mask=row < rows, other=-1)[:, None]
        other_weight = tl.load(weights_ptr + row * K + other, mask=row < rows, other=0.0)
        other_weight = other_weight.to(tl.float32)[:, None]
        counts = (other_id >= 0) & (other_id < E) & ((other_weight > 0) | (other_weight < 0))
        lower = (other_id < ids) | ((other_id == ids) & (other < slot))
        before = (other_weight > weights) | ((other_weight == weights) & lower)
        rank += (before & counts).to(tl.int32)
    return rank


@triton.jit
def census(bins: tl.tensor, SLOTS: tl.constexpr, EP: tl.constexpr) -> tl.tensor:
    """Two histograms over experts, both [EP], int32, of bins ``4 * expert + class``.

    Returns the slots of class 1 and those of class 2; class 0 is nobody.
    """
    histogram = tl.histogram(tl.reshape(bins, [SLOTS]), 4 * EP)
    even, odd = tl.split(tl.reshape(histogram, [EP, 2, 2]))
    _, second = tl.split(even)
    first, _ = tl.split(odd)
    return first, second


@triton.jit
def classes(ids: tl.tensor, valid: tl.tensor, chosen: tl.tensor) -> tl.tensor:
    """Bins for :func:`census`: class 2 for chosen slots, 1 for other valid ones, 0 for the rest."""
    expert = tl.where(valid, ids, 0).to(tl.int32)
    return expert * 4 + tl.where(valid, tl.where(chosen, 2, 1), 0)


@triton.jit
def look_up(
    values: tl.tensor, ids: tl.tensor, valid: tl.tensor, BT: tl.constexpr, KP: tl.constexpr
) -> tl.tensor:
    """``values[id]`` for valid slots, something for others; ``values`` is [EP], the result [BT, KP]."""
    index = tl.reshape(tl.where(valid, ids, 0).to(tl.int32), [BT * KP])
    return tl.reshape(tl.gather(values, index, 0), [BT, KP])
