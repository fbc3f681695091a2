"""Whether two models differ on the same examples."""

import pytest

from sere.evaluation.harness.paired import compare_pairs, mcnemar


@pytest.mark.parametrize(
    ("lost", "gained", "expected"),
    [
        (0, 0, 1.0),
        (5, 5, 1.0),
        (1, 0, 1.0),
        (6, 0, 2 / 64),
        (10, 2, 2 * (1 + 12 + 66) / 4096),
        (2, 10, 158 / 4096),
    ],
)
def test_mcnemar_is_the_two_sided_binomial(lost, gained, expected):
    assert mcnemar(lost, gained) == pytest.approx(expected)


def test_mcnemar_of_thousands_is_no_overflow():
    assert 0 < mcnemar(5200, 4800) < 1e-4


def test_equal_scores_differ_by_nothing():
    pair = compare_pairs([([1, 0, 1, 1], [1, 0, 1, 1])], seed=0)
    assert (pair.difference, pair.difference_interval, pair.retained_interval) == (0, (0, 0), (1, 1))
    assert (pair.lost, pair.gained, pair.p_value) == (0, 0, 1)


def test_an_example_is_drawn_with_both_its_scores():
    # Each example alone is a coin, the difference never changes: drawn apart, the interval would be wide.
    plain = [0.0, 1.0] * 50
    other = [score + 0.5 for score in plain]
    low, high = compare_pairs([(plain, other)], seed=3).difference_interval
    assert (low, high) == pytest.approx((0.5, 0.5))


def test_the_interval_is_that_of_the_mean_difference():
    pair = compare_pairs([([1] * 100, [1] * 80 + [0] * 20)], seed=0)
    low, high = pair.difference_interval
    half = 1.96 * (0.2 * 0.8 / 100) ** 0.5
    assert (low, high) == pytest.approx((-0.2 - half, -0.2 + half), abs=0.015)
    assert (pair.retained, pair.lost, pair.gained) == (0.8, 20, 0)
    assert pair.retained_interval == pytest.approx((0.8 - half, 0.8 + half), abs=0.015)


def test_parts_weigh_the_same_whatever_their_size():
    pair = compare_pairs([([1] * 90, [1] * 90), ([1] * 10, [0] * 10)], seed=0)
    assert (pair.reference, pair.value, pair.retained, pair.examples) == (1, 0.5, 0.5, 100)


def test_scores_between_0_and_1_have_no_mcnemar_and_a_reference_of_0_no_ratio():
    pair = compare_pairs([([0.5, 0.25], [0.25, 0.5])], seed=0)
    assert (pair.lost, pair.gained, pair.p_value, pair.retained) == (None, None, None, 1)
    assert compare_pairs([([0, 0], [1, 0])], seed=0).retained is None
