"""Result files of other tools become a record of the same kind."""

from pathlib import Path

import pytest

from sere.bench.served.reading import read_named, read_served
from sere.errors import RecordError
from tests.bench.results import made
from tests.bench.results.test_results import written


def files(folder):
    base = written(folder, made.guidellm(made.guidellm_run(2.0), made.guidellm_run(4.0)), "base.json")
    again = written(folder, made.guidellm(made.guidellm_run(4.0, tpot=44.0)), "again.json")
    fast = written(folder, made.guidellm(made.guidellm_run(4.0, tpot=20.0)), "fast.json")
    return [("sere:top_s=1", fast), ("unmodified", base), ("unmodified", again)]


def test_policies_are_set_against_the_unmodified_server_at_the_same_rate(tmp_path):
    record = read_served(files(tmp_path))
    assert [(each.variant, each.rate) for each in record.summaries] == [
        ("unmodified", 2.0),
        ("unmodified", 4.0),
        ("sere:top_s=1", 4.0),
    ]
    _, plain, fast = record.summaries
    assert (plain.repetitions, plain.tpot.low, plain.tpot.high) == (2, 40.0, 44.0)
    assert fast.decoding.median == 2.0
    assert fast.after is None
    assert record.cells[0].result == "fast.json"
    assert record.runs == []


def test_a_load_without_a_rate_is_left_out_and_named(tmp_path):
    open_ = written(tmp_path, made.aiperf(rate=None), "open.json")
    record = read_served([("none", open_), *files(tmp_path)])
    assert record.config == {"left_out": ["open.json: 20 requests of none"]}
    with pytest.raises(RecordError, match="has a request rate"):
        read_served([("none", open_)])


def test_a_file_given_twice_is_refused(tmp_path):
    path = written(tmp_path, made.vllm())
    with pytest.raises(RecordError, match="is the same as"):
        read_served([("unmodified", path), ("none", path)])


def test_the_last_sign_parts_variant_and_file(tmp_path, monkeypatch):
    assert read_named("sere:top_s=1,threshold=0.5=a/b.json") == (
        "sere:top_s=1,threshold=0.5",
        Path("a/b.json"),
    )
    assert read_named("base.json") == ("unmodified", Path("base.json"))
    monkeypatch.chdir(tmp_path)
    Path("qps=4.json").write_text("{}")
    assert read_named("qps=4.json") == ("unmodified", Path("qps=4.json"))
