"""Points on disk survive interrupts, and nothing half-written is believed."""

import pytest

from sere.errors import DataError
from sere.evaluation.sweep import Point, PointCache, Sample


def point(policy="sere:top_s=1", kl=0.5):
    sample = Sample(kl=[kl, 0.25], agreement=[0.5, 1.0], loss=[2.0, 1.0], reference_loss=[1.0, 1.0])
    return Point(
        policy=policy,
        batch_size=4,
        seed=0,
        before=8.0,
        after=4.0,
        of=16,
        rerouted=0.25,
        tokens=10,
        sample=sample,
    )


def test_points_come_back_as_they_were_put(tmp_path):
    file = tmp_path / "deep" / "points.jsonl"
    first = PointCache(file)
    first.put("a", point())
    first.put("b", point(kl=float("inf")))
    again = PointCache(file)
    assert len(again) == 2
    assert again.get("a") == point()
    assert again.get("b").kl == float("inf")
    assert again.get("c") is None


def test_nothing_is_written_twice(tmp_path):
    file = tmp_path / "points.jsonl"
    cache = PointCache(file)
    cache.put("a", point())
    size = file.stat().st_size
    cache.put("a", point())
    PointCache(file).put("a", point())
    assert file.stat().st_size == size


def test_a_line_that_was_cut_off_costs_that_point_only(tmp_path):
    file = tmp_path / "points.jsonl"
    cache = PointCache(file)
    cache.put("a", point())
    cache.put("b", point())
    file.write_bytes(file.read_bytes()[:-40])
    cut = PointCache(file)
    assert "a" in cut
    assert "b" not in cut
    cut.put("b", point())
    cut.put("c", point())
    assert len(PointCache(file)) == 3


def test_two_caches_may_share_a_file(tmp_path):
    file = tmp_path / "points.jsonl"
    one, two = PointCache(file), PointCache(file)
    one.put("a", point())
    two.put("b", point())
    one.put("c", point())
    assert len(PointCache(file)) == 3
    assert two.get("c") == point()  # written by the other after this one was opened
    two.put("a", point())
    assert len([line for line in file.read_text().splitlines() if line]) == 3


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        PointCache(tmp_path)


def test_what_a_point_says_follows_from_its_sequences():
    made = point()
    assert made.kl == 0.375
    assert made.top1 == 0.75
    assert made.perplexity_change == pytest.approx(2.718281828**0.5 - 1)
    assert made.share == 0.5
