"""SERE against the oracle, and the ten shared semantics one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sere.errors import PolicyError, RoutingError
from sere.routing import DECODE, PADDING, PREFILL, LayerStatistics, RoutingBatch, make_policy
from tests.routing import oracle
from tests.routing.strategies import THRESHOLDS, cases

BIG = settings(max_examples=250, deadline=None)


def active_set(active: torch.Tensor) -> set[int]:
    return set(active.nonzero().flatten().tolist())


def batch_of(ids, weights, experts, kinds=None) -> RoutingBatch:
    kinds = None if kinds is None else torch.tensor(kinds)
    return RoutingBatch(torch.tensor(ids), torch.tensor(weights), experts, kinds)


def ring(experts: int) -> LayerStatistics:
    """Experts that are the more alike the nearer their numbers are."""
    index = torch.arange(experts, dtype=torch.float32)
    return LayerStatistics(1 - (index[:, None] - index).abs() / experts)


@BIG
@given(
    cases(),
    st.integers(1, 16),
    THRESHOLDS,
    st.sampled_from((None, 0, 1, 3, 40)),
    st.sampled_from(("decode", "all")),
)
def test_equals_the_oracle(drawn, top_s, threshold, floor, phase):
    case, batch, layer = drawn
    policy = make_policy("sere", top_s=top_s, threshold=threshold, floor=floor, phase=phase)
    routes = policy.route(batch, layer)
    expected, active = oracle.sere(case, top_s, threshold, floor, phase)
    assert routes.ids.tolist() == (expected or routes.ids.tolist())
    assert active_set(routes.active) == active
    assert routes.ids.dtype == batch.ids.dtype
    assert routes.weights.equal(batch.weights) or batch.weights.isnan().any()
    assert not routes.empty.any()


@BIG
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(1, 16), st.integers(4, 512), THRESHOLDS)
def test_is_the_published_rule_without_floor_for_sorted_slots(seed, rows, top_k, experts, threshold):
    top_k = min(top_k, experts)
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(experts)[:top_k] for _ in range(rows)])
    weights = np.sort(rng.random((rows, top_k)).astype(np.float32) + 0.01, axis=1)[:, ::-1].copy()
    similarity = rng.random((experts, experts)).astype(np.float32)
    for top_s in range(1, top_k):
        policy = make_policy("sere", top_s=top_s, threshold=threshold, floor=0, phase="all")
        batch = RoutingBatch(torch.from_numpy(ids), torch.from_numpy(weights), experts)
        routes = policy.route(batch, LayerStatistics(torch.from_numpy(similarity)))
        assert routes.ids.tolist() == oracle.published(ids.tolist(), similarity, top_s, threshold)
        assert routes.weights is batch.weights or routes.weights.equal(batch.weights)


def test_1_top_s_is_by_weight_not_by_position_and_ties_go_to_the_lowest_id():
    policy = make_policy("sere", top_s=1, floor=0)
    unsorted = policy.route(batch_of([[0, 7, 3]], [[0.1, 0.2, 0.7]], 8), ring(8))
    assert unsorted.ids.tolist() == [[3, 3, 3]]
    tied = policy.route(batch_of([[6, 2, 4]], [[0.4, 0.4, 0.2]], 8), ring(8))
    assert tied.ids.tolist() == [[2, 2, 2]]


def test_2_foreign_ids_and_weightless_slots_neither_vote_nor_change():
    batch = batch_of([[-1, 9, 5, 2]], [[0.9, 0.8, 0.0, 0.1]], 8)
    routes = make_policy("sere", top_s=1, floor=0).route(batch, ring(8))
    assert routes.ids.tolist() == [[-1, 9, 5, 2]]
    assert active_set(routes.active) == {2}


def test_3_equal_similarities_go_to_the_lowest_id_and_float32_decides():
    similarity = torch.zeros(4, 4)
    similarity[3, 0], similarity[3, 1] = 0.5, 0.5 + 2**-20  # equal in bfloat16, not in float32
    batch = batch_of([[0, 3], [1, 3]], [[0.9, 0.1], [0.9, 0.1]], 4)
    batch = RoutingBatch(batch.ids, batch.weights.bfloat16(), 4)
    routes = make_policy("sere", top_s=1, floor=0).route(batch, LayerStatistics(similarity))
    assert routes.ids.tolist() == [[0, 1], [1, 1]]
    similarity[3, 1] = 0.5
    routes = make_policy("sere", top_s=1, floor=0).route(batch, LayerStatistics(similarity))
    assert routes.ids.tolist() == [[0, 0], [1, 0]]


def test_3_a_threshold_of_zero_has_no_cutoff_for_negative_similarities():
    layer = LayerStatistics(torch.full((4, 4), -0.9))
    batch = batch_of([[0, 3]], [[0.9, 0.1]], 4)
    assert make_policy("sere", top_s=1, floor=0).route(batch, layer).ids.tolist() == [[0, 0]]
    kept = make_policy("sere", top_s=1, threshold=1e-6, floor=0).route(batch, layer)
    assert kept.ids.tolist() == [[0, 3]]


def test_3_a_similarity_equal_to_the_threshold_is_enough():
    layer = LayerStatistics(torch.full((4, 4), 0.3))
    batch = batch_of([[0, 3]], [[0.9, 0.1]], 4)
    assert make_policy("sere", top_s=1, threshold=0.3, floor=0).route(batch, layer).ids.tolist() == [[0, 0]]


@pytest.mark.parametrize("parameters", [{"top_s": 3}, {"top_s": 9}, {"top_s": 1, "threshold": 1.01}])
@pytest.mark.parametrize("merge", [False, True])
def test_4_settings_without_effect_return_the_very_input(parameters, merge):
    batch = batch_of([[0, 7, 7], [1, 2, 3]], [[0.1, 0.2, 0.7], [0.3, 0.3, 0.3]], 8)
    policy = make_policy("sere", merge=merge, **parameters)
    routes = policy.route(batch, ring(8), redirect_padding=True)
    assert routes.ids is batch.ids
    assert routes.weights is batch.weights
    assert policy.inert(3) is not None


def test_5_slots_keep_resident_and_critical_experts_and_only_residents_are_substitutes():
    similarity = torch.zeros(6, 6)
    similarity[4, 5], similarity[2, 3], similarity[1, 3] = 0.9, 0.9, 0.1
    # Row 1 is a prompt: 3 is resident. Row 0 keeps 0; 2 goes to 3; 4 is like 5 only, so it is critical;
    # 1 is less like 3 than asked, and though 4 stays it is no substitute.
    similarity[1, 4] = 0.99
    batch = batch_of(
        [[0, 2, 4, 1], [3, 3, -1, -1]], [[0.4, 0.3, 0.2, 0.1], [0.5, 0.5, 0, 0]], 6, [DECODE, PREFILL]
    )
    routes = make_policy("sere", top_s=1, threshold=0.5, floor=0).route(batch, LayerStatistics(similarity))
    assert routes.ids.tolist() == [[0, 3, 4, 1], [3, 3, -1, -1]]
    assert active_set(routes.active) == {0, 1, 3, 4}


@BIG
@given(cases(max_rows=40), st.integers(1, 8), THRESHOLDS, st.booleans(), st.integers(0, 2**32 - 1))
def test_6_the_order_of_rows_and_slots_does_not_matter(drawn, top_s, threshold, merge, seed):
    _, batch, layer = drawn
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(batch.ids.shape[0], generator=generator)
    slots = torch.rand(batch.ids.shape, generator=generator).argsort(1)
    shuffled = RoutingBatch(
        batch.ids.gather(1, slots)[rows],
        batch.weights.gather(1, slots)[rows],
        batch.num_experts,
        batch.kinds[rows],
    )
    policy = make_policy("sere", top_s=top_s, threshold=threshold, merge=merge)
    straight, moved = policy.route(batch, layer), policy.route(shuffled, layer)
    assert moved.ids.equal(straight.ids.gather(1, slots)[rows])
    assert torch.equal(moved.active, straight.active)
    if not merge:  # two slots of one weight and one substitute may change places when merged
        assert moved.weights.equal(straight.weights.gather(1, slots)[rows]) or batch.weights.isnan().any()
    else:
        for new, old in zip(moved.weights, straight.weights.gather(1, slots)[rows], strict=True):
            assert sorted(new.nan_to_num().tolist()) == sorted(old.nan_to_num().tolist())


def test_7_the_floor_grows_s_until_it_is_met():
    ids, weights = [[0, 1, 2, 3], [0, 1, 4, 5]], [[0.4, 0.3, 0.2, 0.1]] * 2
    for floor, active in (
        (0, {0}),
        (2, {0, 1}),
        (3, {0, 1, 2, 4}),
        (None, {0, 1, 2, 4}),
        (5, {0, 1, 2, 3, 4, 5}),
    ):
        routes = make_policy("sere", top_s=1, floor=floor).route(batch_of(ids, weights, 8), ring(8))
        assert active_set(routes.active) == active, floor


@pytest.mark.parametrize("floor", [8, 9, 2**31, 10**30])
def test_7_a_floor_of_all_experts_or_more_keeps_everything(floor):
    batch = batch_of([[0, 1, 2, 3], [0, 1, 4, 5]], [[0.4, 0.3, 0.2, 0.1]] * 2, 8)
    routes = make_policy("sere", top_s=1, floor=floor).route(batch, ring(8))
    assert routes.ids.equal(batch.ids)


@given(cases(max_rows=1), st.integers(1, 8), THRESHOLDS)
@settings(deadline=None)
def test_7_a_single_row_is_never_changed(drawn, top_s, threshold):
    _, batch, layer = drawn
    routes = make_policy("sere", top_s=top_s, threshold=threshold).route(batch, layer)
    assert routes.ids.equal(batch.ids)


def test_7_residents_count_towards_the_floor():
    batch = batch_of([[0, 1], [6, 7]], [[0.6, 0.4], [0.6, 0.4]], 8, [DECODE, PREFILL])
    routes = make_policy("sere", top_s=1, floor=3).route(batch, ring(8))
    assert routes.ids.tolist() == [[0, 0], [6, 7]]


def test_8_prompt_rows_are_kept_by_default_and_moved_in_phase_all():
    batch = batch_of([[0, 5], [6, 2]], [[0.6, 0.4], [0.6, 0.4]], 8, [DECODE, PREFILL])
    assert make_policy("sere", top_s=1, floor=0).route(batch, ring(8)).ids.tolist() == [[0, 6], [6, 2]]
    everywhere = make_policy("sere", top_s=1, floor=0, phase="all").route(batch, ring(8))
    assert everywhere.ids.tolist() == [[0, 6], [6, 0]]


def test_9_padding_rows_do_not_vote_and_can_be_pointed_at_an_active_expert():
    batch = batch_of([[1, 5], [3, -1]], [[0.6, 0.4], [0.6, 0.4]], 8, [DECODE, PADDING])
    policy = make_policy("sere", top_s=1, floor=0)
    assert policy.route(batch, ring(8)).ids.tolist() == [[1, 1], [3, -1]]
    redirected = policy.route(batch, ring(8), redirect_padding=True)
    assert redirected.ids.tolist() == [[1, 1], [1, -1]]
    assert active_set(redirected.active) == {1}
    alone = batch_of([[3, 4]], [[0.6, 0.4]], 8, [PADDING])
    assert policy.route(alone, ring(8), redirect_padding=True).ids.tolist() == [[3, 4]]


def test_10_merging_sums_a_rows_slots_on_one_expert():
    batch = batch_of([[1, 5, 7], [6, 5, 4]], [[0.5, 0.3, 0.2], [0.5, 0.25, 0.25]], 8)
    routes = make_policy("sere", top_s=1, floor=0, merge=True).route(batch, ring(8))
    assert routes.ids.tolist() == [[1, 6, 6], [6, 6, 6]]
    torch.testing.assert_close(routes.weights, torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
    assert routes.empty.tolist() == [[False, False, True], [False, True, True]]


@BIG
@given(cases(max_rows=30), st.integers(1, 4), THRESHOLDS)
def test_10_merging_keeps_each_experts_total_weight_and_leaves_no_duplicates(drawn, top_s, threshold):
    _, batch, layer = drawn
    plain = make_policy("sere", top_s=top_s, threshold=threshold).route(batch, layer)
    merged = make_policy("sere", top_s=top_s, threshold=threshold, merge=True).route(batch, layer)
    if make_policy("sere", top_s=top_s, threshold=threshold).inert(batch.top_k):
        return
    assert merged.ids.equal(plain.ids)
    assert merged.weights[merged.empty].eq(0).all()
    valid = batch.valid() & batch.rows(DECODE).unsqueeze(1)
    for row in range(batch.ids.shape[0]):
        live = valid[row] & ~merged.empty[row]
        names = merged.ids[row][live].tolist()
        assert len(names) == len(set(names))
        for name in names:
            mine = valid[row] & (plain.ids[row] == name)
            total = plain.weights[row][mine].double().sum()
            got = merged.weights[row][live & (merged.ids[row] == name)].double().sum()
            assert abs(got - total) <= 2**-7 * abs(total)


def test_inputs_are_not_changed():
    batch = batch_of([[1, 5, 7]] * 3, [[0.5, 0.3, 0.2]] * 3, 8)
    ids, weights = batch.ids.clone(), batch.weights.clone()
    make_policy("sere", top_s=1, floor=0, merge=True).route(batch, ring(8), redirect_padding=True)
    assert batch.ids.equal(ids)
    assert batch.weights.equal(weights)


def test_a_missing_or_foreign_similarity_is_named():
    batch = batch_of([[1, 5]], [[0.5, 0.3]], 8)
    with pytest.raises(RoutingError, match="8 experts, got None"):
        make_policy("sere", top_s=1).route(batch, LayerStatistics())
    with pytest.raises(RoutingError, match=r"\(4, 4\)"):
        make_policy("sere", top_s=1).route(batch, ring(4))


@pytest.mark.parametrize(
    "parameters",
    [{"top_s": 0}, {"threshold": -0.1}, {"threshold": float("nan")}, {"floor": -1}, {"phase": "x"}],
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(PolicyError, match=next(iter(parameters))):
        make_policy("sere", **parameters)


def test_10_an_infinite_weight_stays_with_its_own_expert():
    ids = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 3]])
    weights = torch.tensor([[float("inf"), 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2]])
    similarity = torch.zeros(4, 4)
    similarity[2, 1] = similarity[3, 1] = 1.0
    policy = make_policy("sere", top_s=1, floor=0, merge=True)
    routes = policy.route(RoutingBatch(ids, weights, 4), LayerStatistics(similarity))
    assert routes.ids.tolist() == [[0, 1, 1, 1], [0, 1, 1, 1]]
    assert torch.allclose(routes.weights[0], torch.tensor([float("inf"), 0.6, 0.0, 0.0]))
    assert torch.allclose(routes.weights[1], torch.tensor([0.1, 0.9, 0.0, 0.0]))
