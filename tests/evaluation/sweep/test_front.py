"""At equal distinct experts."""

import math

import pytest

from sere.evaluation.sweep.estimate import Estimate, student
from sere.evaluation.sweep.front import efficient, interpolated, ratio, standings
from tests.evaluation.sweep.made import record, setting


def test_the_interval_is_students():
    found = Estimate.of([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.high - 2 == pytest.approx(4.303 / math.sqrt(3))
    assert found.low == pytest.approx(4 - found.high)
    assert found.seeds == [1, 2, 3]


def test_one_seed_shows_no_spread():
    found = Estimate.of([1.5])
    assert (found.mean, found.low, found.high) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (4, 2.776), (10, 2.228), (11, 2.201), (20, 2.086), (60, 2.000)]
)
def test_quantiles_are_those_of_the_tables(freedom, value):
    assert student(freedom) == pytest.approx(value, abs=0.001)


@pytest.mark.parametrize(("freedom", "value"), [(1, 6.314), (7, 1.895), (15, 1.753), (40, 1.684)])
def test_one_sided_quantiles_are_those_of_the_tables(freedom, value):
    assert student(freedom, one_sided=True) == pytest.approx(value, abs=0.001)


def test_between_two_settings_the_logarithm_is_linear():
    settings = [setting("a", "a1", 2, [0.4]), setting("a", "a2", 6, [0.1])]
    assert interpolated(settings, [4.0]).mean == pytest.approx(0.2)
    assert interpolated(settings, [2.0]).mean == pytest.approx(0.4)
    assert interpolated(settings, [6.0]).mean == pytest.approx(0.1)


def test_nothing_is_extrapolated():
    settings = [setting("a", "a1", 2, [0.4]), setting("a", "a2", 6, [0.1])]
    assert interpolated(settings, [1.9]) is None
    assert interpolated(settings, [6.1]) is None


def test_towards_no_loss_kl_itself_is_linear():
    settings = [setting("a", "a1", 2, [0.4]), setting("a", "a2", 6, [0.0])]
    assert interpolated(settings, [4.0]).mean == pytest.approx(0.2)


def test_a_setting_that_another_beats_in_both_does_not_bend_the_line():
    settings = [
        setting("a", "a1", 2, [0.4]), setting("a", "worse", 4, [0.9]), setting("a", "a2", 6, [0.1])
    ]  # fmt: skip
    assert [each.policy for each in efficient(settings)] == ["a1", "a2"]
    assert interpolated(settings, [4.0]).mean == pytest.approx(0.2)


def test_a_milder_setting_that_loses_more_is_replaced_by_the_stronger_one():
    settings = [setting("a", "a1", 2, [0.1]), setting("a", "a2", 6, [0.4])]
    assert interpolated(settings, [5.0]).mean == pytest.approx(0.1)


def test_ratios_are_paired_by_seed():
    found = ratio(Estimate.of([0.2, 0.8]), Estimate.of([0.1, 0.4]))
    assert (found.mean, found.low, found.high) == (2, 2, 2)


def test_series_are_ranked_and_ties_are_named():
    # b is always 10% worse, so it is told apart; c is better in one seed and worse in the others.
    lines = {"a": [0.10, 0.20, 0.30], "b": [0.11, 0.22, 0.33], "c": [0.13, 0.19, 0.31]}
    settings = [
        setting(name, f"{name}{experts}", experts, kl) for name, kl in lines.items() for experts in (4, 6)
    ]
    found = standings(record(settings), 4, 0.5)
    assert [each.series for each in found] == ["a", "c", "b"]
    assert [each.best for each in found] == [True, False, False]
    assert [each.tied for each in found] == [True, True, False]


def test_a_series_that_does_not_reach_the_level_has_no_standing():
    settings = [setting("a", "a1", 4, [0.1]), setting("a", "a2", 6, [0.1]), setting("b", "b1", 8, [0.1])]
    assert [each.series for each in standings(record(settings), 4, 0.5)] == ["a"]
