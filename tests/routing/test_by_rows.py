"""Policies by rows, and the guard."""

from __future__ import annotations

import pytest
import torch

from sere.errors import PolicyError
from sere.routing import ByRows, Guard, LayerStatistics, RoutingBatch, make_policy, parse_policy

TEXT = "top_k:k=3@4|top_k:k=1@16"


def batch(rows: int) -> RoutingBatch:
    generator = torch.Generator().manual_seed(rows)
    ids = torch.stack([torch.randperm(32, generator=generator)[:4] for _ in range(rows)])
    return RoutingBatch(ids, torch.rand(rows, 4, generator=generator) + 0.1, 32)


@pytest.mark.parametrize(
    ("rows", "same"),
    [(3, None), (4, "top_k:k=3"), (15, "top_k:k=3"), (16, "top_k:k=1"), (200, "top_k:k=1")],
)
def test_a_step_is_routed_by_the_policy_of_its_number_of_rows(rows, same):
    step = batch(rows)
    routes = parse_policy(TEXT).route(step, LayerStatistics())
    if same is None:
        assert routes.ids is step.ids
        assert routes.weights is step.weights
        return
    alone = parse_policy(same).route(step, LayerStatistics())
    assert torch.equal(routes.ids, alone.ids)
    assert torch.equal(routes.weights, alone.weights)
    assert torch.equal(routes.active, alone.active)


def test_it_needs_and_requires_what_any_of_its_policies_does():
    policy = parse_policy("energy:size=8@4|oea:top_s=2@16")
    assert policy.requires == make_policy("energy").requires | make_policy("oea").requires
    assert policy.needs == {"scores"}


def test_it_is_inert_only_if_all_its_policies_are():
    assert parse_policy("top_k:k=4@4|top_k:k=1@16").inert(4) is None
    assert "k=4 keeps all" in str(parse_policy("top_k:k=4@4").inert(4))


@pytest.mark.parametrize(
    "text",
    [
        "top_k:k=1@4|top_k:k=2@4",
        "top_k:k=1@0",
        "top_k:k=1|top_k:k=2@4",
        "top_k:k=1@x",
        "top_k:k=1,phase=all@2|top_k:k=2@4",
    ],
)
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(PolicyError, match=r"rows|ROWS|phase"):
        parse_policy(text)


def test_the_phase_is_that_of_its_policies():
    policy = parse_policy("none@1|top_k:k=1,phase=all@8")
    assert isinstance(policy, ByRows)
    assert policy.phase == "all"


@pytest.mark.parametrize(
    ("given", "passing"),
    [(8, {8, 9, 1000}), ([8, 64], {8, 64}), ([None, 8], {1, 8}), ([8, None], {8, 1000})],
)
def test_a_guard_lets_steps_between_its_limits_through(given, passing):
    guard = Guard.of(given)
    assert {rows for rows in (1, 7, 8, 9, 64, 65, 1000) if guard.passes(rows)} >= passing
    assert all(guard.passes(rows) == (rows >= guard.least) for rows in (1, 7, 8)) or guard.least == 1
    assert guard.most is None or not guard.passes(guard.most + 1)


@pytest.mark.parametrize("given", [0, -1, True, "8", [8], [8, 4], 2.5, [1, 2, 3]])
def test_a_guard_that_makes_no_sense_is_refused(given):
    with pytest.raises(PolicyError, match="guard"):
        Guard.of(given)
