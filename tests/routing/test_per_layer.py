"""Policies by layers."""

from __future__ import annotations

import pytest
import torch

from sere.errors import PolicyError, RoutingError
from sere.routing import LayerStatistics, PerLayer, RoutingBatch, make_policy, parse_policy

TEXT = "top_k:k=1#0-1+4;sere:top_s=1#2;oea"


@pytest.mark.parametrize(
    ("layer", "same"),
    [(0, "top_k:k=1"), (1, "top_k:k=1"), (2, "sere:top_s=1"), (3, "oea"), (4, "top_k:k=1"), (5, "oea")],
)
def test_each_layer_has_the_policy_that_names_it_and_the_others_the_rest(layer, same):
    assert parse_policy(TEXT).of_layer(layer) == parse_policy(same)


def test_layers_without_a_policy_stay_as_routed():
    assert parse_policy("top_k:k=1#3").of_layer(2) == make_policy("none")


def test_a_layer_may_have_a_policy_by_rows():
    policy = parse_policy("top_k:k=3@4|top_k:k=1@16#0;top_k:k=2")
    assert policy.of_layer(0).at(20) == parse_policy("top_k:k=1")
    assert policy.of_layer(1).at(20) == parse_policy("top_k:k=2")


def test_any_other_policy_is_that_of_every_layer():
    policy = make_policy("sere")
    assert policy.of_layer(0) is policy
    assert policy.of_layer(77) is policy


def test_it_needs_and_requires_what_any_of_its_policies_does():
    policy = parse_policy(TEXT)
    assert policy.requires == {"similarity"}
    assert policy.needs == {"scores"}


def test_it_is_inert_only_if_all_its_policies_are():
    assert parse_policy("top_k:k=1#0;top_k:k=4").inert(4) is None
    assert "k=4 keeps all" in str(parse_policy("top_k:k=4#0").inert(4))


def test_the_phase_is_that_of_its_policies():
    assert parse_policy("top_k:k=1,phase=all#1;none").phase == "all"


def test_it_does_not_route_without_a_layer():
    batch = RoutingBatch(torch.tensor([[0, 1]]), torch.tensor([[0.6, 0.4]]), 4)
    with pytest.raises(RoutingError, match="of_layer"):
        parse_policy(TEXT).route(batch, LayerStatistics())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("top_k#", "layers cannot be ''"),
        ("top_k#a", "0-2"),
        ("top_k#3-1", "0-2"),
        ("top_k#0;sere#0-1", "each once"),
        ("top_k;sere", "2 policies without layers"),
        ("top_k:phase=all#0;top_k:k=1#1", "one phase"),
        ("tpo_k#0", "Did you mean 'top_k'"),
    ],
)
def test_what_cannot_be_read_is_refused(text, message):
    with pytest.raises(PolicyError, match=message):
        parse_policy(text)


def test_nothing_and_nesting_are_refused():
    with pytest.raises(PolicyError, match="at least one layer"):
        PerLayer.of([])
    with pytest.raises(PolicyError, match="nested"):
        PerLayer.of([(0, parse_policy("top_k#0"))])
