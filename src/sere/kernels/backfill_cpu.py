"""The second family on the CPU in numpy; only rows that change are looked at."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sere.kernels import host
from sere.kernels.backfilling import BackfillOptions
from sere.kernels.cpu import primary_set


def backfill(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    scores: Tensor,
    preference: Tensor,
    options: BackfillOptions,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do what :func:`sere.kernels.backfilling.definition` does, bit for bit, into fresh tensors."""
    experts = scores.shape[1]
    rows = host.read(ids, weights, kinds, experts, options.everyone)
    top_s, floor = options.resolved(ids.shape[1])
    routed, active, ordered = primary_set(rows, experts, top_s, floor)
    active = _budgeted(active, preference, options.budget)
    open_slots = rows.voting & ~active.take(rows.ids, mode="clip")
    new_ids, sums = rows.ids.copy(), rows.weights.copy()
    touched = np.zeros(new_ids.shape, np.bool_)
    live = rows.valid
    lines = np.flatnonzero(open_slots.any(1))
    if len(lines):
        ordered = host.keys(rows, rows.voting) if ordered is None else ordered
        removed = _fill(
            rows, lines, ordered[lines], open_slots, active, scores, options, new_ids, sums, touched
        )
        live = live & ~removed
    loaded = np.zeros(experts, np.bool_)
    loaded[new_ids[live]] = True
    if options.redirect_padding and rows.padding is not None and loaded.any():
        new_ids[rows.usable & rows.padding[:, None]] = loaded.argmax()
    step = np.array(host.counters(rows, routed, int(np.count_nonzero(open_slots)), loaded), dtype=np.int64)
    changed = torch.from_numpy(sums).to(weights.dtype)
    return (
        torch.from_numpy(new_ids),
        torch.where(torch.from_numpy(touched), changed, weights.detach()),
        torch.from_numpy(step),
    )


def _budgeted(forced: host.Bools, preference: Tensor, budget: int) -> host.Bools:
    room = budget - int(np.count_nonzero(forced))
    if room <= 0:
        return forced
    likes = preference.float().numpy()
    likes = np.where(np.isnan(likes), np.float32("-inf"), likes)
    order = np.argsort(-likes, kind="stable")
    active = forced.copy()
    active[order[~forced[order]][:room]] = True
    return active


def _fill(
    rows: host.Rows,
    lines: host.Ints,
    ordered: host.Ints,
    open_slots: host.Bools,
    active: host.Bools,
    scores: Tensor,
    options: BackfillOptions,
    new_ids: host.Ints,
    sums: host.Floats,
    touched: host.Bools,
) -> host.Bools:
    """Fill the open slots of ``lines`` in place, columns in falling weight; return the removed slots."""
    place, live = host.place(ordered), host.present(ordered)
    holes = live & np.take_along_axis(open_slots[lines], place, 1)
    names = np.where(live, np.take_along_axis(rows.ids[lines], place, 1), 0)
    likes = scores.float().numpy()[lines]
    likes = np.where(np.isnan(likes), np.float32("-inf"), likes)
    own = np.zeros(likes.shape, np.bool_)
    line, column = np.nonzero(live)
    own[line, names[line, column]] = True
    columns = np.flatnonzero(active)
    # numpy sorts NaN last, after the candidates whose score is -inf.
    order = np.argsort(np.where(own[:, columns], np.nan, -likes[:, columns]), axis=1, kind="stable")
    turn = np.cumsum(holes, axis=1) - 1
    filled = holes & (turn < (~own[:, columns]).sum(1, keepdims=True))
    picked = columns[np.take_along_axis(order, turn.clip(0, len(columns) - 1), 1)]
    names = np.where(filled, picked, names)
    gone = holes & ~filled
    kept = (live & ~gone).argmax(1)
    names = np.where(gone, np.take_along_axis(names, kept[:, None], 1), names)

    line, column = np.nonzero(holes)
    new_ids[lines[line], place[line, column]] = names[line, column]
    removed = np.zeros(new_ids.shape, np.bool_)
    line, column = np.nonzero(gone)
    removed[lines[line], place[line, column]] = True
    sums[removed] = 0
    touched |= removed
    if options.renormalise:
        raw = np.where(live & ~gone, np.take_along_axis(likes, names, 1), np.float32(0))
        old = np.where(live, np.take_along_axis(rows.weights[lines], place, 1), np.float32(0))
        with np.errstate(all="ignore"):
            # A running sum adds one after the other, in float32.
            before, after = old.cumsum(1)[:, -1:], raw.cumsum(1)[:, -1:]
            sane = np.isfinite(before) & np.isfinite(after) & (after != 0)
            scaled = np.where(sane, raw * (before / after), np.where(gone, np.float32(0), old))
        line, column = np.nonzero(live)
        sums[lines[line], place[line, column]] = scaled[line, column]
        touched[lines[line], place[line, column]] = True
    return removed
