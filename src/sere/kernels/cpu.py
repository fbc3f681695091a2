"""SERE on the CPU: sets of experts instead of tensors of slots, in about thirty numpy calls."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sere.kernels import host
from sere.kernels.table import LayerTable, Options


def reroute(
    ids: Tensor, weights: Tensor, kinds: Tensor | None, table: LayerTable, options: Options
) -> tuple[Tensor, Tensor, Tensor]:
    """Do what :func:`sere.kernels.definition.reroute` does, bit for bit, into fresh tensors."""
    experts, top_k = table.num_experts, ids.shape[1]
    top_s, floor, merge, redirect = options.resolved(top_k)
    rows = host.read(ids, weights, kinds, experts, options.everyone)
    routed, primary, ordered = primary_set(rows, experts, top_s, floor)
    target = _targets(table, routed, primary)
    moving = rows.voting
    names = target.astype(rows.ids.dtype).take(rows.ids, mode="clip")
    new_ids = names if moving.all() else np.where(moving, names, rows.ids)
    changed = new_ids != rows.ids
    if merge and ordered is not None:
        new_weights, emptied = _merge(rows, ordered, new_ids, weights.detach())
        changed |= emptied
    else:
        new_weights = weights.clone(memory_format=torch.contiguous_format)
    loaded = primary
    loaded[target[np.flatnonzero(routed)]] = True
    if redirect and rows.padding is not None and loaded.any():
        moved = rows.usable & rows.padding[:, None]
        new_ids = np.where(moved, rows.ids.dtype.type(loaded.argmax()), new_ids)
    step = host.counters(rows, routed, int(np.count_nonzero(changed)), loaded)
    return torch.from_numpy(new_ids), new_weights, torch.from_numpy(np.array(step, dtype=np.int64))


def primary_set(
    rows: host.Rows, experts: int, top_s: int, floor: int
) -> tuple[host.Bools, host.Bools, npt.NDArray[np.int64] | None]:
    """Experts that any row names, those that stay, both of shape [E]; the voters' keys, if sorted."""
    everything = np.zeros(experts, np.bool_)
    everything[rows.ids[rows.valid]] = True
    if top_s >= rows.ids.shape[1] or (top_s and floor and np.count_nonzero(everything) <= floor):
        # All of them: growing S would end there too. Merging still needs the order.
        return everything, everything.copy(), None if top_s >= rows.ids.shape[1] else _keys(rows)
    ordered = _keys(rows)
    best = host.expert(ordered, experts)
    active = np.zeros(experts + 1, np.bool_)
    if rows.voting is not rows.valid:
        active[rows.ids[rows.valid & ~rows.voting]] = True
    active[best[:, :top_s]] = True
    while np.count_nonzero(active[:-1]) < floor and top_s < best.shape[1]:
        active[best[:, top_s]] = True
        top_s += 1
    return everything, active[:-1], ordered


def _keys(rows: host.Rows) -> npt.NDArray[np.int64]:
    return host.keys(rows, rows.voting)


def _targets(table: LayerTable, routed: host.Bools, primary: host.Bools) -> host.Ints:
    """Where each expert's slots go, shape [E]; to itself if it stays."""
    target = np.arange(table.num_experts)
    secondary, substitutes = np.flatnonzero(routed & ~primary), np.flatnonzero(primary)
    if not len(secondary) or not len(substitutes):
        return target
    # Only the rows and columns that matter: a few hundred floats. Substitutes come in rising id, so
    # the first maximum is the lowest id.
    likeness = table.similarity.numpy()[secondary[:, None], substitutes]
    best = likeness.argmax(1)
    found = substitutes[best]
    if table.threshold > 0:
        enough = likeness[np.arange(len(secondary)), best] >= np.float32(table.threshold)
        found = np.where(enough, found, secondary)
    target[secondary] = found
    return target


def _merge(
    rows: host.Rows, ordered: npt.NDArray[np.int64], new_ids: host.Ints, weights: Tensor
) -> tuple[Tensor, host.Bools]:
    """Sum weights of a row's slots on one expert into the heaviest; new weights, and the emptied slots."""
    place, live = host.place(ordered), host.present(ordered)
    names = np.where(live, np.take_along_axis(new_ids, place, 1), -1)
    first = (names[:, :, None] == names[:, None, :]).argmax(2)
    later = live & (first != np.arange(names.shape[1]))
    emptied = np.zeros(names.shape, np.bool_)
    line, column = np.nonzero(later)
    if not len(line):
        return weights.clone(memory_format=torch.contiguous_format), emptied
    gone, keeper = place[line, column], place[line, first[line, column]]
    sums = rows.weights.copy()
    # One after the other in falling weight, in float32, as the definition adds.
    np.add.at(sums.reshape(-1), line * names.shape[1] + keeper, rows.weights[line, gone])
    emptied[line, gone] = True
    touched = emptied.copy()
    touched[line, keeper] = True
    sums[emptied] = 0
    summed = torch.from_numpy(sums).to(weights.dtype)
    return torch.where(torch.from_numpy(touched), summed, weights), emptied
