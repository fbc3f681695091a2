"""A slow and obvious re-statement of SERE from the paper and the shared semantics, in plain Python.

Nothing here is shared with the implementation: rows and slots are loops, sets are sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

DECODE, PREFILL, PADDING = 0, 1, 2


@dataclass
class Case:
    """One layer and step as nested lists; weights are Python floats that the dtype can hold."""

    ids: list[list[int]]
    weights: list[list[float]]
    kinds: list[int]
    experts: int
    similarity: np.ndarray


def is_valid(case: Case, row: int, slot: int) -> bool:
    expert, weight = case.ids[row][slot], case.weights[row][slot]
    return 0 <= expert < case.experts and weight != 0 and not math.isnan(weight)


def heaviest_first(case: Case, row: int) -> list[int]:
    """Valid slots of a row: by falling weight, then by rising expert id."""
    slots = [slot for slot in range(len(case.ids[row])) if is_valid(case, row, slot)]
    return sorted(slots, key=lambda slot: (-case.weights[row][slot], case.ids[row][slot]))


def primary_experts(case: Case, voters: list[int], resident: set[int], top_s: int) -> set[int]:
    chosen = set(resident)
    for row in voters:
        chosen |= {case.ids[row][slot] for slot in heaviest_first(case, row)[:top_s]}
    return chosen


def sere(
    case: Case, top_s: int, threshold: float, floor: int | None, phase: str
) -> tuple[list[list[int]], set[int]]:
    """Re-routed ids and the active set."""
    top_k = len(case.ids[0]) if case.ids else 0
    moving = {DECODE} if phase == "decode" else {DECODE, PREFILL}
    voters = [row for row, kind in enumerate(case.kinds) if kind in moving]
    others = [row for row, kind in enumerate(case.kinds) if kind not in moving and kind != PADDING]
    resident = {case.ids[row][slot] for row in others for slot in heaviest_first(case, row)}
    least = top_k if floor is None else floor
    size = top_s
    primary = primary_experts(case, voters, resident, size)
    while len(primary) < least and size < top_k:
        size += 1
        primary = primary_experts(case, voters, resident, size)
    active = set(primary)
    new_ids = [list(row) for row in case.ids]
    for row in voters:
        for slot in heaviest_first(case, row):
            expert = case.ids[row][slot]
            if expert not in primary:
                target = substitute(case, expert, primary, threshold)
                new_ids[row][slot] = target
                active.add(target)
    return new_ids, active


def substitute(case: Case, expert: int, primary: set[int], threshold: float) -> int:
    best = max(sorted(primary), key=lambda other: case.similarity[expert, other])
    if threshold != 0 and case.similarity[expert, best] < np.float32(threshold):
        return expert
    return best


def published(ids: list[list[int]], similarity: np.ndarray, top_s: int, threshold: float) -> list[list[int]]:
    """The published rule on sorted slots, no floor, every row voting: top-S is the first S columns."""
    primary = sorted({expert for row in ids for expert in row[:top_s]})
    out = []
    for row in ids:
        line = []
        for expert in row:
            best = primary[int(np.argmax([similarity[expert, other] for other in primary]))]
            keep = expert in primary or (threshold > 0 and similarity[expert, best] < np.float32(threshold))
            line.append(expert if keep else best)
        out.append(line)
    return out
