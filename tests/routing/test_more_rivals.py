"""Lynx, AdapMoE and LExI against their rules written out in loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sere.errors import PolicyError
from sere.routing import PerLayer, make_policy, parse_policy
from tests.routing import rivals
from tests.routing.scored import scored_cases
from tests.routing.test_rivals import FAST, FLOORS, least, outcome, same


@FAST
@given(scored_cases(), st.integers(1, 20), st.integers(0, 2), st.integers(1, 5), FLOORS)
def test_lynx(scored, size, top_s, bins, floor):
    case, batch, layer = scored
    voters, rows, _ = rivals.split(case)
    total = np.zeros(case.experts)
    for row in voters:
        most = np.float32(max(rows[row].values(), default=0.0))
        for expert, weight in rows[row].items():
            part = np.float32(weight) * (np.float32(bins) / most)
            total[expert] += min(max(math.ceil(part), 1), bins)
    active = rivals.budget(case, total, size, top_s, least(case, floor))
    if top_s >= case.ids.shape[1]:
        active = set(range(case.experts))
    policy = make_policy("lynx", size=size, top_s=top_s, bins=bins, floor=floor)
    same(outcome(policy, batch, layer), rivals.backfilled(case, active))


@FAST
@given(scored_cases(), st.integers(0, 2), st.sampled_from((0.0101, 0.0903, 0.37, 5.0)))
def test_adapmoe(scored, number, tolerance):
    case, batch, layer = scored
    sensitivity = (1.0, 0.26, 3.1)
    policy = parse_policy(f"adapmoe:tolerance={tolerance},sensitivity=1+0.26+3.1").of_layer(number)
    voters, rows, _ = rivals.split(case)
    beta = min(math.sqrt(tolerance / sensitivity[number]), 0.999)
    for row in voters:
        kept = rivals.tail_mass(rows[row], beta)
        if rows[row] and len(kept) < len(rows[row]):
            rows[row] = rivals.rescaled({e: w for e, w in rows[row].items() if e in kept}, rows[row])
    same(outcome(policy, batch, layer), (rows, rivals.used(rows)))


@FAST
@given(scored_cases(), st.integers(0, 3))
def test_lexi(scored, number):
    case, batch, layer = scored
    policy = parse_policy("lexi:k=2+1+3").of_layer(number)
    voters, rows, _ = rivals.split(case)
    for row in voters:
        if number < 3:
            kept = rivals.by_weight(rows[row])[: (2, 1, 3)[number]]
            if len(kept) < len(rows[row]):
                rows[row] = rivals.rescaled({e: rows[row][e] for e in kept}, rows[row])
    same(outcome(policy, batch, layer), (rows, rivals.used(rows)))


def test_one_number_is_the_same_in_every_layer():
    assert parse_policy("lexi:k=3").select == make_policy("top_k", k=3).select
    assert parse_policy("adapmoe:tolerance=0.09").select.beta == pytest.approx(0.3)


def test_several_make_a_policy_by_layers():
    policy = parse_policy("lexi:k=3+2")
    assert isinstance(policy, PerLayer)
    assert policy.name == "lexi"
    assert [policy.of_layer(layer).name for layer in range(3)] == ["lexi", "lexi", "none"]


@pytest.mark.parametrize(
    "text",
    [
        "lexi:k=2+x",
        "lexi:k=0",
        "lexi:k=1.5+2",
        "adapmoe:sensitivity=0",
        "adapmoe:tolerance=-1",
        "lynx:bins=0",
    ],
)
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(PolicyError):
        parse_policy(text)
