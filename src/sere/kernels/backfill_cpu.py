"""The second family on the CPU in numpy; only rows that change are looked at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sere.kernels import host
from sere.kernels.backfilling import BackfillOptions
from sere.kernels.cpu import primary_set
from sere.routing import RouterScores


def backfill(
    ids: Tensor,
    weights: Tensor,
    kinds: Tensor | None,
    scores: RouterScores,
    total: Tensor | None,
    options: BackfillOptions,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do what :func:`sere.kernels.backfilling.definition` does, bit for bit, into fresh tensors."""
    experts = scores.order.shape[1]
    top_s, floor, size, redirect = options.resolved(ids.shape[1])
    rows = host.read(ids, weights, kinds, experts, options.everyone)
    routed, active, ordered = primary_set(rows, experts, top_s, floor)
    if size:
        active = _filled_up(active, _mass(rows, scores) if total is None else total.numpy(), size)
    open_slots = rows.voting & ~active.take(rows.ids, mode="clip")
    lines = np.flatnonzero(open_slots.any(1))
    if len(lines):
        ordered = host.keys(rows, rows.voting) if ordered is None else ordered
        block = _Block.of(rows, lines, ordered[lines], open_slots, np.flatnonzero(active), scores)
        new_ids, new_weights, loaded = block.write(rows, weights.detach(), experts, options.renormalise)
    else:
        new_ids, loaded = rows.ids.copy(), routed
        new_weights = weights.detach().clone(memory_format=torch.contiguous_format)
        block = None
    if redirect and rows.padding is not None and loaded.any():
        new_ids[rows.usable & rows.padding[:, None]] = loaded.argmax()
    step = host.counters(rows, routed, 0 if block is None else block.changed, loaded)
    return torch.from_numpy(new_ids), new_weights, torch.from_numpy(np.array(step, dtype=np.int64))


def _mass(rows: host.Rows, scores: RouterScores) -> host.Floats:
    """Sum of the voting rows' absolute scores, shape [E]."""
    voting = np.abs(scores.weight.detach().float().numpy()[rows.voting.any(1)])
    total: host.Floats = voting.sum(0, dtype=np.float64).astype(np.float32)
    return total


def _filled_up(forced: host.Bools, total: host.Floats, size: int) -> host.Bools:
    """Add the experts of the greatest totals above 0 until there are ``size``; equal ones: the lowest id."""
    free = np.flatnonzero(~forced & (total > 0))
    room = size - int(np.count_nonzero(forced))
    if room <= 0:
        return forced
    best = free[np.argsort(-total[free], kind="stable")[:room]]
    active = forced.copy()
    active[best] = True
    return active


@dataclass
class _Block:
    """Rows with open slots, L of them, their slots in falling weight.

    Attributes:
        lines: The rows, shape [L].
        place: Slot of every column, shape [L, K].
        live: Columns that hold a slot, shape [L, K].
        old: Experts before, shape [L, K].
        names: Experts afterwards.
        found: Slots that were given another expert, shape [L, K].
        gone: Slots that were removed, shape [L, K].
        weight: Router's weighting scores of these rows, shape [L, E].

    """

    lines: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    live: host.Bools
    old: host.Ints
    names: host.Ints
    found: host.Bools
    gone: host.Bools
    weight: host.Floats

    @classmethod
    def of(
        cls,
        rows: host.Rows,
        lines: npt.NDArray[np.int64],
        ordered: npt.NDArray[np.int64],
        open_slots: host.Bools,
        columns: npt.NDArray[np.int64],
        scores: RouterScores,
    ) -> _Block:
        """Hand out the active experts, ``columns``."""
        place, live = host.place(ordered), host.present(ordered)
        old = np.where(live, np.take_along_axis(rows.ids[lines], place, 1), 0)
        holes = live & np.take_along_axis(open_slots[lines], place, 1)
        best, can = _candidates(scores.order.detach().float().numpy()[lines], old, live, columns)
        turn = holes.cumsum(1) - 1
        if len(columns):
            served = holes & (turn < len(columns))  # the rest has no active expert left
            turn = turn.clip(0, len(columns) - 1)
            found = served & np.take_along_axis(can, turn, 1)
            names = np.where(found, np.take_along_axis(best, turn, 1), old)
        else:
            found, names = np.zeros_like(holes), old
        gone = holes & ~found
        left = live & ~gone
        bare = ~left.any(1)
        if bare.any():  # such a row keeps its heaviest slot
            gone[bare, 0], left[bare, 0] = False, True
        names = np.where(gone, np.take_along_axis(names, left.argmax(1)[:, None], 1), names)
        weight = scores.weight.detach().float().numpy()[lines]
        return cls(lines, place, live, old, names, found, gone, weight)

    @property
    def changed(self) -> int:
        """Number of slots that name another expert or carry nothing."""
        return int(np.count_nonzero(self.found | self.gone))

    def write(
        self, rows: host.Rows, weights: Tensor, experts: int, renormalise: bool
    ) -> tuple[host.Ints, Tensor, host.Bools]:
        """Return new ids and weights of the whole step, and the experts that it loads, shape [E]."""
        changed = (self.found | self.gone).any(1, keepdims=True)
        touched = self.live & (changed if renormalise else self.found | self.gone)
        line, column = np.nonzero(touched)
        at = self.lines[line], self.place[line, column]
        new_ids, values = rows.ids.copy(), rows.weights.copy()
        new_ids[at] = self.names[line, column]
        values[at] = self._weights(rows, renormalise)[line, column]
        loaded = np.zeros(experts, np.bool_)
        loaded[new_ids[rows.valid]] = True
        if weights.dtype == torch.float32:
            return new_ids, torch.from_numpy(values), loaded
        mask = np.zeros(new_ids.shape, np.bool_)
        mask[at] = True
        return (
            new_ids,
            torch.where(torch.from_numpy(mask), torch.from_numpy(values).to(weights.dtype), weights),
            loaded,
        )

    def _weights(self, rows: host.Rows, renormalise: bool) -> host.Floats:
        """Weights of the block, shape [L, K], in the definition's order of operations."""
        own = np.take_along_axis(rows.weights[self.lines], self.place, 1)
        full = _row_sums(own, self.live)
        raw = _row_sums(np.take_along_axis(self.weight, self.old, 1), self.live)
        with np.errstate(all="ignore"):
            scale = np.where(raw != 0, full / raw, np.float32(0))
            new = np.where(self.found, np.take_along_axis(self.weight, self.names, 1) * scale, own)
            new = np.where(self.gone | ~self.live, np.float32(0), new)
            if renormalise:
                total = _row_sums(new, self.live)
                new = new * np.where(total != 0, full / total, np.float32(1))
        weights: host.Floats = new
        return weights


def _candidates(
    order: host.Floats, old: host.Ints, live: host.Bools, columns: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], host.Bools]:
    """Active experts that a row does not name, best first; and which of them are any; both [L, A]."""
    named = np.zeros(order.shape, np.bool_)
    line, column = np.nonzero(live)
    named[line, old[line, column]] = True
    likes = np.where(named[:, columns], np.float32("-inf"), order[:, columns])
    likes = np.where(np.isnan(likes), np.float32("-inf"), likes)
    by = np.argsort(-likes, axis=1, kind="stable")
    return columns[by], np.take_along_axis(likes, by, 1) > np.float32("-inf")


def _row_sums(values: host.Floats, slots: host.Bools) -> host.Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        total: host.Floats = values.sum(1, dtype=np.float64, where=slots, keepdims=True).astype(np.float32)
    return total
