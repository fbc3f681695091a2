"""Every recipe says what to sweep, in values that it takes."""

from __future__ import annotations

import pytest

from sere.routing.recipes import RECIPES, knob_of, make_policy

SWEPT = sorted(set(RECIPES) - {"none"})


@pytest.mark.parametrize("name", SWEPT)
@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (32, 4), (128, 8), (512, 10)])
def test_every_recipe_has_a_knob_with_values_that_it_takes(name, experts, top_k):
    knob = knob_of(RECIPES[name])
    assert knob is not None
    values = knob.values(experts, top_k)
    assert values
    assert len(set(values)) == len(values)
    for value in values:
        make_policy(name, **{knob.parameter: value})


def test_the_control_has_none():
    assert knob_of(RECIPES["none"]) is None
