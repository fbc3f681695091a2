"""What a user writes: tolerance and traffic; and the policy that is put together from settings."""

import pytest

from sere.errors import TuningError
from sere.routing import parse_policy
from sere.tuning import Tolerance, Traffic
from sere.tuning.compose import compose


@pytest.mark.parametrize(
    ("text", "kind", "limit"),
    [
        ("kl<=0.02", "kl", 0.02),
        (" KL <= 2e-2 ", "kl", 0.02),
        ("agreement>=0.99", "agreement", 0.01),
        ("agreement >= 99%", "agreement", 0.01),
        ("perplexity_change<=1%", "perplexity_change", 0.01),
    ],
)
def test_a_tolerance_is_a_limit_on_a_loss(text, kind, limit):
    found = Tolerance.parse(text)
    assert (found.kind, found.limit) == (kind, pytest.approx(limit))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kl", "Write for example"),
        ("kl>=0.02", "Write kl<=0.02"),
        ("agreement<=1%", "Write agreement>=1%"),
        ("agrement>=0.9", "Did you mean 'agreement'"),
        ("agreement>=1", "Serve the unmodified model"),
        ("agreement>=0", "everything"),
        ("kl<=0", "Serve the unmodified model"),
        ("kl<=1.2.3", "no number"),
    ],
)
def test_other_tolerances_are_refused(text, message):
    with pytest.raises(TuningError, match=message):
        Tolerance.parse(text)


def test_traffic_is_a_share_of_steps_by_rising_batch_size(tmp_path):
    wanted = {1: 0.1, 4: 0.2, 16: 0.7}
    assert Traffic.parse("16:70,1:10,4:20").shares == pytest.approx(wanted)
    assert list(Traffic.parse("16:70,1:10,4:20").shares) == [1, 4, 16]
    (tmp_path / "lines").write_text("1:10\n4:20\n16:50\n16:20\n8:0\n")
    (tmp_path / "object.json").write_text('{"1": 10, "4": 20, "16": 70}')
    for name in ("lines", "object.json"):
        assert Traffic.parse(str(tmp_path / name)).shares == pytest.approx(wanted)


def test_a_fine_histogram_falls_into_classes_that_begin_at_their_least_size():
    found = Traffic.of((size, 1.0) for size in range(3, 19))
    assert found.shares == pytest.approx({3: 1 / 16, 4: 4 / 16, 8: 8 / 16, 16: 3 / 16})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0:1", "not 0"),
        ("4:-1", "Write 0 or more"),
        ("4:nan", "Write 0 or more"),
        ("4:0", "no steps"),
        ("4:x", "cannot be read"),
        ("4:1:2", "cannot be read"),
        ("nowhere.json", "neither"),
    ],
)
def test_other_traffic_is_refused(text, message):
    with pytest.raises(TuningError, match=message):
        Traffic.parse(text)


def test_settings_by_batch_size_become_one_policy():
    assert compose({16: "oea:top_s=2"}) == "oea:top_s=2"
    assert compose({1: None, 4: "a", 16: "b"}) == "a@4|b@16"
    assert compose({1: "a", 4: "a"}) == "a"
    assert compose({2: "a", 4: "a"}) == "a@2"
    assert compose({4: "a", 16: None, 64: "a"}) == "a@4|none@16|a@64"
    assert compose({1: None, 4: None}) is None


def test_the_composed_policy_is_each_setting_from_its_batch_size_on():
    policy = parse_policy(compose({4: "oea:top_s=2", 16: None, 64: "top_k:k=2"}))
    found = [policy.at(rows).name for rows in (3, 4, 15, 16, 63, 64, 100)]
    assert found == ["none", "oea", "oea", "none", "none", "top_k", "top_k"]
