"""Slow and obvious re-statements of the rivals' rules, one function each, in loops over rows and slots.

Every function returns, for each row, ``{expert: weight}`` after the policy, without slots that carry
nothing, and the set of active experts. Nothing is shared with the implementation.
"""

from __future__ import annotations

import numpy as np

from tests.routing.scored import Scored, best

DECODE, PADDING = 0, 2
Mixture = dict[int, float]


def mixture(case: Scored, row: int) -> Mixture:
    """The row's valid slots."""
    found: Mixture = {}
    for expert, weight in zip(case.ids[row], case.weights[row], strict=True):
        if 0 <= expert < case.experts and weight != 0:
            found[int(expert)] = float(weight)
    return found


def by_weight(row: Mixture) -> list[int]:
    return sorted(row, key=lambda expert: (-row[expert], expert))


def split(case: Scored) -> tuple[list[int], list[Mixture], set[int]]:
    """Rows that vote, every row's mixture, resident experts."""
    rows = [{} if kind == PADDING else mixture(case, row) for row, kind in enumerate(case.kinds)]
    voters = [row for row, kind in enumerate(case.kinds) if kind == DECODE]
    resident = {expert for row, kind in enumerate(case.kinds) if kind == 1 for expert in rows[row]}
    return voters, rows, resident


def union(case: Scored, top_s: int) -> set[int]:
    voters, rows, resident = split(case)
    return resident | {expert for row in voters for expert in by_weight(rows[row])[:top_s]}


def grown_union(case: Scored, top_s: int, floor: int) -> set[int]:
    size = top_s
    while len(union(case, size)) < floor and size < case.ids.shape[1]:
        size += 1
    return union(case, size)


def budget(case: Scored, total: np.ndarray, size: int, top_s: int, floor: int) -> set[int]:
    certain = union(case, top_s)
    active = set(certain)
    for expert in best(total):
        if len(active) >= max(size, floor):
            break
        if total[expert] > 0:
            active.add(int(expert))
    return active


def backfilled(case: Scored, active: set[int]) -> tuple[list[Mixture], set[int]]:
    """Each voting row takes its best active experts, with the router's weights on the row's own scale."""
    voters, rows, _ = split(case)
    for row in voters:
        old = rows[row]
        kept = {expert: weight for expert, weight in old.items() if expert in active}
        wanted = len(old) - len(kept)
        if not wanted:
            continue
        others = [int(e) for e in best(case.order[row]) if int(e) in active and int(e) not in kept]
        scale = sum(old.values()) / sum(float(case.weight[row, e]) for e in old)
        new = {**kept, **{e: float(case.weight[row, e]) * scale for e in others[:wanted]}}
        rows[row] = (
            rescaled(new, old) if new else dict([max(old.items(), key=lambda item: (item[1], -item[0]))])
        )
    return rows, used(rows)


def dropped(case: Scored, active: set[int]) -> tuple[list[Mixture], set[int]]:
    voters, rows, _ = split(case)
    for row in voters:
        old = rows[row]
        kept = {expert: weight for expert, weight in old.items() if expert in active}
        if old and len(kept) < len(old):
            rows[row] = rescaled(kept or {by_weight(old)[0]: 1.0}, old)
    return rows, used(rows)


def rescaled(new: Mixture, old: Mixture) -> Mixture:
    total = sum(new.values())
    return {expert: weight * sum(old.values()) / total for expert, weight in new.items()}


def used(rows: list[Mixture]) -> set[int]:
    return {expert for row in rows for expert in row}


def router_mass(case: Scored) -> np.ndarray:
    voters, rows, _ = split(case)
    total = np.zeros(case.experts)
    for row in voters:
        if rows[row]:
            total += case.weight[row].astype(np.float64)
    return total.astype(np.float32)


def slot_total(case: Scored, worth) -> np.ndarray:
    """Sum over voting rows and their slots of ``worth(row, expert, weight)``."""
    voters, rows, _ = split(case)
    total = np.zeros(case.experts)
    for row in voters:
        for expert, weight in rows[row].items():
            total[expert] += worth(row, expert, weight)
    return total.astype(np.float32)


def tail_mass(old: Mixture, beta: float) -> set[int]:
    ordered = by_weight(old)
    for count in range(1, len(ordered) + 1):
        if sum(old[e] for e in ordered[count:]) <= beta * sum(old.values()):
            return set(ordered[:count])
    return set()


def refitted(
    case: Scored, old: Mixture, new: set[int], ridge: float, prior: Mixture | None = None
) -> Mixture:
    """Normal equations with a ridge relative to the mean of the diagonal, towards zero or a prior."""
    names, lost = sorted(new), sorted(old)
    gram = case.gram.astype(np.float64)
    square = gram[np.ix_(names, names)]
    pull = ridge * square.diagonal().mean()
    square = square + pull * np.eye(len(names))
    wanted = gram[np.ix_(names, lost)] @ np.array([old[e] for e in lost])
    if prior is not None:
        wanted = wanted + pull * np.array([prior[e] for e in names])
    return dict(zip(names, np.linalg.solve(square, wanted), strict=True))
