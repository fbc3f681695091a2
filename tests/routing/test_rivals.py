"""Each rival's recipe against its rule written out in loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sere.errors import RoutingError
from sere.routing import RoutingBatch, make_policy
from sere.routing.recipes import RECIPES
from tests.routing import rivals
from tests.routing.scored import scored_cases

FAST = settings(max_examples=60, deadline=None)
FLOORS = st.sampled_from((None, 0, 3))


def outcome(policy, batch, layer):
    """Rows as ``{expert: weight}`` without empty slots, and the active set."""
    routes = policy.route(batch, layer)
    valid = batch.valid() & (batch.kinds != 2).unsqueeze(1) & ~routes.empty
    rows = []
    for ids, weights, live in zip(routes.ids.tolist(), routes.weights.tolist(), valid.tolist(), strict=True):
        row = {}
        for expert, weight, there in zip(ids, weights, live, strict=True):
            if there:
                row[expert] = row.get(expert, 0.0) + weight
        rows.append(row)
    return rows, set(routes.active.nonzero().flatten().tolist())


def same(got, wanted, tolerance=2e-5):
    rows, active = got
    assert [set(row) for row in rows] == [set(row) for row in wanted[0]]
    for mine, other in zip(rows, wanted[0], strict=True):
        for expert, weight in mine.items():
            assert weight == pytest.approx(other[expert], rel=tolerance, abs=tolerance)
    assert active == wanted[1]


def least(case, floor):
    return case.ids.shape[1] if floor is None else floor


@FAST
@given(scored_cases(), st.integers(1, 4), FLOORS)
def test_oea(scored, top_s, floor):
    case, batch, layer = scored
    got = outcome(make_policy("oea", top_s=top_s, floor=floor), batch, layer)
    same(got, rivals.backfilled(case, rivals.grown_union(case, top_s, least(case, floor))))


@FAST
@given(scored_cases(), st.integers(1, 20), st.integers(0, 2), FLOORS)
def test_xshare(scored, size, top_s, floor):
    case, batch, layer = scored
    active = rivals.budget(case, rivals.router_mass(case), size, top_s, least(case, floor))
    got = outcome(make_policy("xshare", size=size, top_s=top_s, floor=floor), batch, layer)
    if top_s >= case.ids.shape[1]:
        active = set(range(case.experts))
    same(got, rivals.backfilled(case, active))


@FAST
@given(scored_cases(), st.integers(1, 20), FLOORS)
def test_des_vote(scored, size, floor):
    case, batch, layer = scored
    total = rivals.slot_total(case, lambda row, expert, _: float(case.weight[row, expert]))
    active = rivals.budget(case, total, size, 0, least(case, floor))
    same(
        outcome(make_policy("des_vote", size=size, floor=floor), batch, layer),
        rivals.backfilled(case, active),
    )


@FAST
@given(scored_cases(), st.integers(1, 20), st.booleans(), FLOORS)
def test_moe_spec(scored, size, substitute, floor):
    case, batch, layer = scored
    active = rivals.budget(case, rivals.router_mass(case), size, 0, least(case, floor))
    fill = rivals.backfilled if substitute else rivals.dropped
    policy = make_policy("moe_spec", size=size, substitute=substitute, floor=floor)
    same(outcome(policy, batch, layer), fill(case, active))


@FAST
@given(scored_cases(), st.integers(1, 20), st.integers(0, 2), FLOORS)
def test_energy(scored, size, top_s, floor):
    case, batch, layer = scored
    total = rivals.slot_total(
        case, lambda _, expert, weight: float((np.float32(weight) * case.norm[expert]) ** 2)
    )
    active = rivals.budget(case, total, size, top_s, least(case, floor))
    if top_s >= case.ids.shape[1]:
        active = set(range(case.experts))
    got = outcome(make_policy("energy", size=size, top_s=top_s, floor=floor), batch, layer)
    same(got, rivals.backfilled(case, active))


@FAST
@given(scored_cases(), st.sampled_from((0.0, 0.13, 0.29, 0.5, 0.9)))
def test_naee_by_mass(scored, beta):
    case, batch, layer = scored
    voters, rows, _ = rivals.split(case)
    for row in voters:
        kept = rivals.tail_mass(rows[row], beta)
        if rows[row] and len(kept) < len(rows[row]):
            rows[row] = rivals.rescaled({e: w for e, w in rows[row].items() if e in kept}, rows[row])
    same(outcome(make_policy("naee", beta=beta), batch, layer), (rows, rivals.used(rows)))


@FAST
@given(scored_cases(), st.sampled_from((0.0, 0.31, 0.5, 1.0)))
def test_naee_by_ratio(scored, beta):
    case, batch, layer = scored
    voters, rows, _ = rivals.split(case)
    for row in voters:
        old = rows[row]
        top = max(old.values(), default=0.0)
        new = {
            e: w for e, w in old.items() if np.float32(w) >= np.float32(np.float32(beta) * np.float32(top))
        }
        if len(new) < len(old):
            rows[row] = rivals.rescaled(new, old)
    same(outcome(make_policy("naee", beta=beta, rule="ratio"), batch, layer), (rows, rivals.used(rows)))


@FAST
@given(scored_cases(), st.integers(1, 4), st.one_of(st.none(), st.integers(1, 10)))
def test_k1k2(scored, k1, k2):
    case, batch, layer = scored
    voters, rows, _ = rivals.split(case)
    for row in voters:
        old = rows[row]
        new = {e: old[e] for e in rivals.by_weight(old)[:k1]}
        if len(new) < len(old):
            scale = 1.0
            if k2 is not None:
                reference = sum(float(case.weight[row, e]) for e in rivals.best(case.order[row])[:k2])
                scale = sum(float(case.weight[row, e]) for e in old) / reference
            rows[row] = {e: w * scale for e, w in new.items()}
    same(outcome(make_policy("k1k2", k1=k1, k2=k2), batch, layer), (rows, rivals.used(rows)))


@FAST
@given(scored_cases(), st.integers(1, 20), FLOORS)
def test_fold(scored, size, floor):
    case, batch, layer = scored
    voters, rows, _ = rivals.split(case)
    total = rivals.slot_total(case, lambda _, e, weight: float(np.float32(weight) * case.norm[e]))
    active = rivals.budget(case, total, size, 0, least(case, floor))
    gram = case.gram
    kept = np.square(gram) / np.diag(gram)[None]
    own = np.diag(gram)
    for row in voters:
        new: rivals.Mixture = {}
        for expert, weight in rows[row].items():
            target, gain = expert, 1.0
            if expert not in active:
                target = max(sorted(active), key=lambda other: kept[expert, other])
                gain = float(gram[expert, target] / (own[target] + np.float32(1e-3) * own.mean()))
            new[target] = new.get(target, 0.0) + weight * gain
        rows[row] = new
    same(outcome(make_policy("fold", size=size, floor=floor), batch, layer), (rows, rivals.used(rows)), 1e-4)


def tolerated(case, rows, voters, share, top_s, floor):
    """Active experts of a tolerance."""

    def energy(expert, weight):
        return float((np.float32(weight) * case.norm[expert]) ** 2)

    total = rivals.slot_total(
        case, lambda row, e, w: energy(e, w) / sum(energy(*slot) for slot in rows[row].items())
    )
    named = {expert for row in voters for expert in rows[row]}
    certain = rivals.union(case, top_s) if top_s < case.ids.shape[1] else set(range(case.experts))
    droppable = [int(e) for e in rivals.best(total)[::-1] if int(e) in named - certain]
    active = named | certain
    allowed, lost = share * sum(bool(rows[row]) for row in voters), 0.0
    for expert in droppable:
        lost += float(total[expert])
        if lost > allowed or len(active) <= least(case, floor):
            break
        active.discard(expert)
    return active


SHARES = st.sampled_from((0.011, 0.07, 0.23, 0.6))


@FAST
@given(scored_cases(), SHARES, st.integers(0, 2), st.booleans(), FLOORS)
def test_tolerance(scored, share, top_s, backfill, floor):
    case, batch, layer = scored
    voters, rows, _ = rivals.split(case)
    fill = rivals.backfilled if backfill else rivals.dropped
    changed, used = fill(case, tolerated(case, rows, voters, share, top_s, floor))
    wanted = [
        rivals.refitted(case, old, set(new), 1e-2) if set(new) != set(old) else old
        for old, new in zip(rows, changed, strict=True)
    ]
    policy = make_policy("tolerance", share=share, top_s=top_s, backfill=backfill, floor=floor)
    same(outcome(policy, batch, layer), (wanted, used), 2e-3)


@FAST
@given(scored_cases(), SHARES, st.integers(0, 2), st.sampled_from((0.1, 1.0, 30.0)), FLOORS)
def test_refit(scored, share, top_s, ridge, floor):
    case, batch, layer = scored
    voters, rows, _ = rivals.split(case)
    changed, used = rivals.backfilled(case, tolerated(case, rows, voters, share, top_s, floor))
    wanted = [
        rivals.refitted(case, old, set(new), ridge, new) if set(new) != set(old) else old
        for old, new in zip(rows, changed, strict=True)
    ]
    policy = make_policy("refit", share=share, top_s=top_s, ridge=ridge, floor=floor)
    same(outcome(policy, batch, layer), (wanted, used), 2e-3)


@FAST
@given(scored_cases(), st.integers(1, 3))
def test_least_similar_moves_the_slots_that_sere_moves(scored, top_s):
    case, batch, layer = scored
    voters, rows, _ = rivals.split(case)
    primary = rivals.grown_union(case, top_s, case.ids.shape[1])
    for row in voters:
        new: rivals.Mixture = {}
        for expert, weight in rows[row].items():
            target = min(sorted(primary), key=lambda other: case.similarity[expert, other])
            target = expert if expert in primary else target
            new[target] = new.get(target, 0.0) + weight
        rows[row] = new
    same(outcome(make_policy("least_similar", top_s=top_s), batch, layer), (rows, rivals.used(rows)))


@FAST
@given(scored_cases(), st.integers(0, 5))
def test_random_sends_an_expert_to_one_primary_expert(scored, seed):
    case, batch, layer = scored
    policy = make_policy("random", top_s=1, seed=seed)
    routes = policy.route(batch, layer)
    primary = rivals.grown_union(case, 1, case.ids.shape[1])
    targets: dict[int, set[int]] = {}
    for row in rivals.split(case)[0]:
        valid = rivals.mixture(case, row)
        for old, new in zip(case.ids[row].tolist(), routes.ids[row].tolist(), strict=True):
            if old in valid:
                targets.setdefault(old, set()).add(new)
    for old, new in targets.items():
        assert len(new) == 1
        assert new == {old} if old in primary else new <= primary


@pytest.mark.parametrize("name", [name for name in RECIPES if make_policy(name).needs])
def test_a_policy_without_the_scores_it_needs_is_refused_by_name(name):
    batch = RoutingBatch(torch.tensor([[0, 1]]), torch.tensor([[0.6, 0.4]]), 4)
    with pytest.raises(RoutingError, match=rf"policy '{name}' needs the router's scores"):
        make_policy(name).route(batch, None)
