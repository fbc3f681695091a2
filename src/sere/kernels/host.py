"""Pieces of the CPU path: torch's memory seen through numpy, whose calls cost a fifth of torch's.

A decode step re-routes some hundred slots, so time is the number of calls, not the number of slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sere.routing import DECODE, PADDING, PREFILL

Ints = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16)
"""Weights that the CPU and GPU paths take; all are exact in float32."""

_LAST: Final = np.int64(1) << 62
_PLACE_BITS: Final = 8
_ID_BITS: Final = 16


@dataclass
class Rows:
    """A step's slots as arrays.

    Attributes:
        ids: Shape [T, K].
        weights: Shape [T, K], float32.
        usable: Slots with an id in range and a weight that counts, shape [T, K].
        valid: Those of them whose row is not padding.
        voting: Those of them whose row may be re-routed; the very object ``valid`` if all may.
        padding: Padding rows, shape [T], or None if there is none.
        decode: Number of decode rows.
        prefill: Number of prefill rows.

    """

    ids: Ints
    weights: Floats
    usable: Bools
    valid: Bools
    voting: Bools
    padding: Bools | None
    decode: int
    prefill: int


def read(ids: Tensor, weights: Tensor, kinds: Tensor | None, experts: int, everyone: bool) -> Rows:
    """Look at a step; nothing is copied but weights of half precision."""
    names: Ints = ids.numpy()
    values: Floats = weights.detach().float().numpy()
    usable = (names >= 0) & (names < experts) & (np.abs(values) > 0)  # a NaN is not above 0
    types = None if kinds is None else kinds.numpy()
    if types is None or not types.any():
        return Rows(names, values, usable, usable, usable, None, len(names), 0)
    padding, decoding, prefill = types == PADDING, types == DECODE, types == PREFILL
    valid = usable & ~padding[:, None]
    eligible = decoding | prefill if everyone else decoding
    voting = valid & eligible[:, None]
    counts = int(np.count_nonzero(decoding)), int(np.count_nonzero(prefill))
    return Rows(names, values, usable, valid, voting, padding, *counts)


def keys(rows: Rows, slots: Bools) -> npt.NDArray[np.int64]:
    """Order a row's slots: falling weight, then rising id, then place, in one sorted integer each.

    Slots outside of ``slots`` come last. :func:`expert` and :func:`place` take a key apart. Floats
    compare as their bits do if those of negative ones are turned over.
    """
    bits = rows.weights.view(np.int32)
    falling = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))
    key = falling.astype(np.int64) << (_ID_BITS + _PLACE_BITS)
    key |= rows.ids.astype(np.int64) << _PLACE_BITS
    key |= np.arange(rows.ids.shape[1])
    ordered: npt.NDArray[np.int64] = np.where(slots, key, _LAST)
    ordered.sort(axis=1)
    return ordered


def present(key: npt.NDArray[np.int64]) -> Bools:
    """Whether a key is that of a slot that takes part."""
    taking_part: Bools = key != _LAST
    return taking_part


def expert(key: npt.NDArray[np.int64], missing: int) -> npt.NDArray[np.int64]:
    """Expert of every key; ``missing`` for slots that take no part."""
    return np.where(key == _LAST, missing, (key >> _PLACE_BITS) & ((1 << _ID_BITS) - 1))


def place(key: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Slot of every key; only for slots that take part."""
    return key & ((1 << _PLACE_BITS) - 1)


def counters(rows: Rows, routed: Bools, changed: int, loaded: Bools) -> tuple[int, ...]:
    """Counters of the step in the order of :data:`sere.routing.FIELDS`.

    Args:
        rows: The step.
        routed: Experts that any row names, shape [E].
        changed: Slots that name another expert or carry nothing now.
        loaded: Experts that the step will load, shape [E].

    """
    before, slots = int(np.count_nonzero(routed)), int(np.count_nonzero(rows.valid))
    after = int(np.count_nonzero(loaded))
    return int(before > 0), rows.decode, rows.prefill, slots, changed, before, after
