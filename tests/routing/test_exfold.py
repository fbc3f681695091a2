"""ExFold's decode half against its rule in loops: regressions over tokens, not moments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sere.errors import PolicyError, RoutingError
from sere.routing import LayerStatistics, RoutingBatch, make_policy
from tests.calibration import oracle
from tests.routing import rivals
from tests.routing.scored import scored_cases
from tests.routing.test_rivals import FAST, FLOORS, least, outcome, same


class Seen:
    """Tokens of a calibration: all experts' outputs, shape [E, N, H], and who was routed where, [N, E]."""

    def __init__(self, experts: int, slots: int, tokens: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        own = rng.normal(size=(experts, 1, 5)) + rng.normal(size=5)
        scale = np.exp(rng.normal(size=(experts, 1, 1)))
        self.outputs = scale * (own + rng.normal(size=(experts, tokens, 5)))
        self.ids = np.stack([rng.choice(experts, slots, replace=False) for _ in range(tokens)])
        self.routed = np.zeros((tokens, experts), dtype=bool)
        np.put_along_axis(self.routed, self.ids, True, 1)

    def sums(self) -> dict[str, torch.Tensor]:
        found = oracle.routed_sums(self.outputs, self.ids, np.ones(self.ids.shape))
        return {name: torch.from_numpy(value).float() for name, value in found.items()}

    def norms(self) -> list[float]:
        lengths = np.linalg.norm(self.outputs, axis=2)
        own = [lengths[e][self.routed[:, e]] for e in range(len(lengths))]
        known = sorted(float(each.mean()) for each in own if len(each))
        return [float(each.mean()) if len(each) else known[(len(known) - 1) // 2] for each in own]

    def fold(self, u: int, v: int, ridge: float, clip: float) -> tuple[float, float] | None:
        """The scalar and the loss of u folded onto v; None if they never met."""
        both = self.routed[:, u] & self.routed[:, v]
        if not both.any():
            return None
        us, vs = self.outputs[u][both], self.outputs[v][both]
        weight = np.linalg.norm(us, axis=1)
        scalar = (weight * (us * vs).sum(1)).sum() / ((weight * (vs * vs).sum(1)).sum() + ridge)
        scalar = min(max(scalar, -clip), clip)
        lost = (weight * ((us - scalar * vs) ** 2).sum(1)).sum() / (weight**3).sum()
        return float(scalar), float(lost)


@FAST
@given(
    scored_cases(max_rows=12),
    st.integers(1, 20),
    FLOORS,
    st.sampled_from((3, 12, 60)),
    st.sampled_from((0.05, 4.0)),
    st.integers(0, 99),
)
def test_exfold(scored, size, floor, tokens, clip, seed):
    case, batch, layer = scored
    seen = Seen(case.experts, case.ids.shape[1], tokens, seed)
    norms = seen.norms()
    layer = replace(layer, **seen.sums())
    voters, rows, _ = rivals.split(case)
    total = rivals.slot_total(case, lambda _, e, weight: float(np.float32(weight) * np.float32(norms[e])))
    active = rivals.budget(case, total, size, 0, least(case, floor))
    for row in voters:
        new: rivals.Mixture = {}
        for expert, weight in rows[row].items():
            if expert in active:
                new[expert] = new.get(expert, 0.0) + weight
                continue
            folds = {other: seen.fold(expert, other, 1e-3, clip) for other in sorted(active)}
            known = {other: found for other, found in folds.items() if found is not None}
            if known:
                target = min(known, key=lambda other: known[other][1])
                new[target] = new.get(target, 0.0) + weight * known[target][0]
        if rows[row] and not new:
            heaviest = rivals.by_weight(rows[row])[0]
            new = {heaviest: rows[row][heaviest]}
        rows[row] = new
    policy = make_policy("exfold", size=size, floor=floor, clip=clip)
    same(outcome(policy, batch, layer), (rows, rivals.used(rows)), 1e-3)


def test_it_takes_the_scale_of_the_expert_that_is_left_out():
    # Expert 2 always gives three times expert 0, which it met, so its slot weighs three times as much there.
    outputs = np.array([[[1.0, 0.0]] * 4, [[0.0, 1.0]] * 4, [[3.0, 0.0]] * 4])
    ids = np.array([[0, 2], [0, 2], [0, 1], [1, 2]])
    sums = oracle.routed_sums(outputs, ids, np.ones(ids.shape))
    layer = LayerStatistics(**{name: torch.from_numpy(value).float() for name, value in sums.items()})
    batch = RoutingBatch(
        torch.tensor([[0, 1], [0, 1], [0, 2]]), torch.tensor([[9.0, 8.0]] * 2 + [[7.0, 1.0]]), 3
    )
    routes = make_policy("exfold", size=2, ridge=0).route(batch, layer)
    assert routes.active.tolist() == [True, True, False]
    assert routes.ids.tolist() == [[0, 1], [0, 1], [0, 0]]
    assert routes.weights[2].tolist() == pytest.approx([7.0, 3.0])


def test_pairs_that_never_met_are_not_folded():
    sums = oracle.routed_sums(np.ones((3, 2, 2)), np.array([[0, 1], [2, -1]]), np.ones((2, 2)))
    layer = LayerStatistics(**{name: torch.from_numpy(value).float() for name, value in sums.items()})
    batch = RoutingBatch(torch.tensor([[0, 1], [0, 2]]), torch.tensor([[9.0, 8.0], [7.0, 1.0]]), 3)
    routes = make_policy("exfold", size=2).route(batch, layer)
    assert routes.weights[1].tolist() == [7.0, 0.0]
    assert routes.empty[1].tolist() == [False, True]


@pytest.mark.parametrize("change", [{"clip": 0.0}, {"ridge": -1.0}, {"size": 0}])
def test_what_makes_no_sense_is_refused(change):
    with pytest.raises(PolicyError):
        make_policy("exfold", **change)


def test_without_moments_of_routed_tokens_it_is_refused():
    batch = RoutingBatch(torch.tensor([[0, 1]]), torch.tensor([[0.6, 0.4]]), 4)
    with pytest.raises(RoutingError, match="needs the calibrated routed_norm of 4 experts"):
        make_policy("exfold").route(batch, LayerStatistics())
