"""The time that a calibration says it will take follows from what its first batches took."""

from __future__ import annotations

import pytest

from sere.calibration import CalibrationConfig
from sere.calibration.stream.estimate import Clock, spoken


def clock(rounds: int, routed=(True,) * 4, **config) -> Clock:
    return Clock(list(routed), rounds, CalibrationConfig(**config), 0)


def test_layers_and_batches_multiply_what_loading_and_the_second_batch_took():
    each = clock(8, sequences=16, sequence_length=128, batch_sequences=2)
    each.loaded(0, 5.0)
    each.ran(0, 90.0)  # the first of all warms up, and does not count
    assert not each.due()
    each.ran(0, 2.0)
    assert each.due()
    assert each.seconds(16, 128) == 4 * (5 + 8 * 2)
    assert each.seconds(400, 128) == 4 * (5 + 200 * 2)
    assert (
        each.sentence("M")
        == "M, 16 x 128 tokens, this machine: about 84 seconds (400 x 128 tokens: about 27 minutes)"
    )


def test_a_batch_smaller_than_asked_for_is_not_taken_for_a_full_one():
    each = clock(1, sequences=4, sequence_length=128, batch_sequences=16)
    each.loaded(0, 0.0)
    each.ran(0, 3.0)
    assert each.seconds(4, 128) == pytest.approx(4 * 3)
    assert each.seconds(400, 128) == pytest.approx(4 * 300)


def test_a_last_batch_that_is_smaller_counts_by_its_size():
    each = clock(3, sequences=5, sequence_length=128, batch_sequences=2)
    each.loaded(0, 0.0)
    each.ran(0, 2.0)
    each.ran(0, 2.0)
    assert each.seconds(5, 128) == pytest.approx(4 * 2.5 * 2)


def test_each_of_two_processes_runs_half_of_the_batches():
    each = clock(4, sequences=16, sequence_length=128, batch_sequences=2)
    each.loaded(0, 0.0)
    each.ran(0, 2.0)
    assert each.seconds(16, 128) == pytest.approx(4 * 4 * 2)


def test_dense_layers_are_timed_by_themselves_once_one_has_run():
    each = clock(2, routed=(False, True, True), sequences=4, sequence_length=128, batch_sequences=2)
    each.loaded(0, 1.0)
    each.ran(0, 0.5)
    each.ran(0, 0.5)
    assert not each.due()
    each.loaded(1, 3.0)
    each.ran(1, 4.0)
    each.ran(1, 4.0)
    assert each.due()
    assert each.seconds(4, 128) == pytest.approx((1 + 2 * 0.5) + 2 * (3 + 2 * 4))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(76, "76 seconds"), (130, "2.2 minutes"), (1500, "25 minutes"), (7200, "2.0 hours")],
)
def test_times_are_said_as_a_person_would(seconds, words):
    assert spoken(seconds) == words
