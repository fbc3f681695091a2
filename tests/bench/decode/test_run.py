"""Rounds in turns, kept one by one, and gone on with after an interrupt."""

import errno
import json

import pytest
import torch

from sere.bench.decode import DecodeConfig, run_decode
from sere.bench.decode.record import Counted, DecodeRecord, Turn
from sere.bench.subject import Subject
from sere.errors import DataError, RecordError

SUBJECT = Subject(source="m", variants=("unmodified", "none", "top_k:k=1"))
CONFIG = DecodeConfig(batch_sizes=(2, 4), rounds=3, steps=2, prompt_tokens=2)
SPEED = {"unmodified": 0.04, "none": 0.05, "top_k:k=1": 0.02}


class Stub:
    """An engine whose steps take what :data:`SPEED` says; it stops after ``most`` turns."""

    def __init__(self, most=99):
        self.turns, self.warm, self.most, self.closed = [], [], most, False

    def describe(self):
        return {"device": "cpu", "dtype": "float32"}

    def warm_up(self, ids):
        self.warm.append(len(ids))

    def time(self, variant, ids, number):
        if len(self.turns) == self.most:
            raise KeyboardInterrupt
        self.turns.append((len(ids), number, variant))
        experts = Counted(before=8, after=4, rerouted=0.5, layers=[]) if variant != "unmodified" else None
        return Turn(variant=variant, seconds=SPEED[variant] * (1 + number), experts=experts)

    def close(self):
        self.closed = True


def run(folder, engine, config=CONFIG, subject=SUBJECT):
    def texts(size):
        return torch.zeros(size, config.length, dtype=torch.int64)

    return run_decode(subject, config, folder, "transformers", lambda: engine, texts)


def test_every_round_has_every_variant_once_and_the_order_turns(tmp_path):
    engine = Stub()
    record = run(tmp_path, engine)
    assert engine.warm == [2, 4]
    assert [variant for _, _, variant in engine.turns[:6]] == [
        *("unmodified", "none", "top_k:k=1"),
        *("none", "top_k:k=1", "unmodified"),
    ]
    assert engine.closed
    fast = next(each for each in record.results if (each.variant, each.batch_size) == ("top_k:k=1", 4))
    assert (fast.ratio.low, fast.ratio.median, fast.ratio.high) == (2, 2, 2)
    # rounds take 20, 40 and 60 ms: 4 rows in 40 ms are 100 tokens a second
    assert (fast.step_ms.low, fast.step_ms.median, fast.step_ms.high) == (20, 40, 60)
    assert fast.tokens_per_second.median == pytest.approx(100)
    assert (fast.experts.before, fast.experts.after) == (8, 4)
    assert record.results[0].experts is None
    read = DecodeRecord.model_validate_json((tmp_path / "bench.json").read_text())
    assert read.model_dump(mode="json") == record.model_dump(mode="json")


def test_an_interrupted_benchmark_goes_on_with_the_round_that_is_missing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Stub(most=4))
    assert not (tmp_path / "bench.json").exists()
    engine = Stub()
    record = run(tmp_path, engine)
    assert engine.turns[0][:2] == (2, 1)
    assert len(engine.turns) == 15
    assert len(record.rounds) == 6
    assert len({(each.batch_size, each.number) for each in record.rounds}) == 6


def test_a_complete_benchmark_starts_no_engine(tmp_path):
    first = run(tmp_path, Stub())

    def none():
        raise AssertionError

    again = run_decode(SUBJECT, CONFIG, tmp_path, "transformers", none, none)
    assert again.rounds == first.rounds
    assert again.provenance == first.provenance


def test_more_rounds_are_added_but_other_settings_refused(tmp_path):
    run(tmp_path, Stub())
    engine = Stub()
    more = DecodeConfig(batch_sizes=(2, 4), rounds=4, steps=2, prompt_tokens=2)
    assert len(run(tmp_path, engine, more).rounds) == 8
    assert {number for _, number, _ in engine.turns} == {3}
    other = DecodeConfig(batch_sizes=(2, 4), rounds=3, steps=9, prompt_tokens=2)
    with pytest.raises(RecordError, match=r"other settings \(steps: 2 there, 9 now\)"):
        run(tmp_path, Stub(), other)
    with pytest.raises(RecordError, match="variants"):
        run(tmp_path, Stub(), subject=Subject(source="m", variants=("unmodified", "none")))


def test_a_round_that_was_cut_short_is_named(tmp_path):
    run(tmp_path, Stub())
    path = tmp_path / "rounds" / "batch-4_1.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(RecordError, match=r"batch-4_1.json is cut short or damaged .* Delete it"):
        run(tmp_path, Stub())
    path.unlink()
    engine = Stub()
    run(tmp_path, engine)
    assert engine.warm == [4]


def test_a_full_disk_is_a_named_error_and_leaves_no_part(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    run(tmp_path, Stub())
    plan = json.loads((tmp_path / "plan.json").read_text())
    monkeypatch.setattr("os.fsync", full)
    engine = Stub()
    more = DecodeConfig(batch_sizes=(2, 4), rounds=4, steps=2, prompt_tokens=2)
    with pytest.raises(DataError, match="No space left on device"):
        run(tmp_path, engine, more)
    assert json.loads((tmp_path / "plan.json").read_text()) == plan
    assert len(list((tmp_path / "rounds").iterdir())) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_sizes": (0,)}, "batch sizes must be 1 or more"),
        ({"batch_sizes": (4, 4)}, "batch sizes must differ"),
        ({"rounds": 0}, "rounds must be 1 or more"),
        ({"warmup": -1}, "warm-up steps"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        DecodeConfig(**change)
