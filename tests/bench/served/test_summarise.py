"""Medians over repetitions, and ratios to the unmodified server of the same repetition."""

from sere.bench.served.summarise import summarise
from tests.bench.served.made import activity, cell


def test_ratios_are_of_the_same_repetition():
    cells = [
        *(cell(repetition=n, tpot=tpot) for n, tpot in enumerate([40, 80, 60])),
        *(
            cell("sere:top_s=1", repetition=n, tpot=tpot, active=activity())
            for n, tpot in enumerate([20, 20, 60])
        ),
    ]
    plain, policy = summarise(cells, ("unmodified", "sere:top_s=1"), [2.0])
    assert (plain.decoding.low, plain.decoding.median, plain.decoding.high) == (1, 1, 1)
    assert plain.before is None
    assert (policy.decoding.low, policy.decoding.median, policy.decoding.high) == (1, 2, 4)
    assert (policy.throughput.low, policy.throughput.median, policy.throughput.high) == (1, 2, 4)
    assert (policy.tpot.low, policy.tpot.median, policy.tpot.high) == (20, 20, 60)
    assert (policy.before, policy.after, policy.rerouted) == (40, 11, 0.6)


def test_without_an_unmodified_partner_there_is_no_ratio():
    cells = [cell(repetition=0), cell("none", repetition=1, active=activity("none", 40.0))]
    _, none = summarise(cells, ("unmodified", "none"), [2.0])
    assert none.decoding is None
    assert none.tpot.median == 40


def test_rates_and_variants_without_a_load_are_left_out():
    cells = [cell(rate=1.0), cell(rate=4.0), cell("none", rate=4.0)]
    found = summarise(cells, ("unmodified", "none"), [1.0, 2.0, 4.0])
    assert [(each.rate, each.variant) for each in found] == [
        (1.0, "unmodified"),
        (4.0, "unmodified"),
        (4.0, "none"),
    ]
    assert found[0].goodput is None


def test_failed_requests_of_all_repetitions_are_added_up():
    cells = [cell(repetition=n, failed=n, goodput=1.5) for n in range(3)]
    (found,) = summarise(cells, ("unmodified",), [2.0])
    assert (found.failed, found.repetitions, found.goodput.median) == (3, 3, 1.5)
