"""The fit finds the coefficients that made the timings."""

from __future__ import annotations

import random

import pytest

from sere.errors import DataError
from sere.profiling import Step, fit

BYTES = 18_874_368
TRUE = (4e-3, 5e-11, 7e-4)
GRID = [(rows, experts) for rows in (1, 4, 16, 48) for experts in (8, 16, 32, 64) if experts <= rows * 8]


def steps(fixed: float, byte: float, row: float, noise: float = 0.0, seed: int = 0) -> list[Step]:
    draw = random.Random(seed)
    found = []
    for rows, experts in GRID:
        seconds = fixed + byte * BYTES * experts + row * rows
        seconds *= 1 + draw.uniform(-noise, noise)
        found.append(Step(rows, experts, seconds, seconds, seconds))
    return found


def test_exact_timings_give_back_their_coefficients():
    found = fit(steps(*TRUE), BYTES)
    assert (found.fixed, found.byte, found.row) == pytest.approx(TRUE, rel=1e-9)
    assert found.error == pytest.approx(0, abs=1e-9)
    assert len(found.errors) == len(GRID)


@pytest.mark.parametrize("seed", range(5))
def test_noisy_timings_give_them_nearly(seed):
    found = fit(steps(*TRUE, noise=0.05, seed=seed), BYTES)
    assert (found.byte, found.row) == pytest.approx(TRUE[1:], rel=0.15)
    assert 0 < found.error < 0.05


@pytest.mark.parametrize("zero", range(3))
def test_a_cost_that_is_not_there_is_zero_and_no_cost_is_negative(zero):
    true = [value * (place != zero) for place, value in enumerate(TRUE)]
    found = fit(steps(*true, noise=0.02, seed=1), BYTES)
    values = (found.fixed, found.byte, found.row)
    assert min(values) >= 0
    # What is left of it is small beside the smallest step.
    share = (found.fixed, found.byte * BYTES * 8, found.row)[zero] / min(s.seconds for s in steps(*true))
    assert share < 0.1


def test_large_steps_do_not_drown_small_ones():
    # Large steps take longer than the model has it, as beyond a cache; small ones stay near.
    bent = [Step(s.rows, s.experts, s.seconds * (1.3 if s.experts == 64 else 1), 0, 0) for s in steps(*TRUE)]
    found = fit(bent, BYTES)
    assert abs(found.errors[0]) < 0.1


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (lambda step: step.rows == 16, "cannot tell"),
        (lambda step: step.experts == 8, "cannot tell"),
        (lambda step: False, "cannot tell"),
    ],
)
def test_steps_that_cannot_tell_the_costs_apart_are_refused(kept, message):
    with pytest.raises(DataError, match=message):
        fit([step for step in steps(*TRUE) if kept(step)], BYTES)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_cannot_be_are_refused(bad):
    given = steps(*TRUE)
    with pytest.raises(DataError, match="took no time"):
        fit([*given, Step(4, 8, bad, bad, bad)], BYTES)
