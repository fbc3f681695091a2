"""Results of three load generators say the same thing in the same words."""

import hashlib
import json

import pytest

from sere.bench.results import read_result
from sere.errors import RecordError
from tests.bench.results import made


def written(folder, document, name="result.json"):
    path = folder / name
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("tool", ["vllm", "guidellm", "aiperf"])
def test_the_same_load_reads_the_same(tmp_path, tool):
    path = written(tmp_path, getattr(made, tool)())
    before = path.read_bytes()
    (load,), digest = read_result(path)
    assert path.read_bytes() == before
    assert digest == hashlib.sha256(before).hexdigest()
    assert (load.tool, load.rate, load.completed, load.failed, load.seconds) == (tool, 4.0, 20, 1, 5.0)
    assert (load.requests_per_second, load.tokens_per_second, load.output_tokens) == (4.0, 256.0, 1280)
    assert (load.ttft.median, load.tpot.median, load.e2el.median) == (120.0, 40.0, 2400.0)
    # only vLLM gives the time between tokens over all pairs; the others give means of requests
    assert (load.itl is None) == (tool != "vllm")


def test_guidellm_gives_one_load_a_rate_and_says_which_keep_requests_open(tmp_path):
    runs = [
        made.guidellm_run(strategy={"type_": "synchronous"}),
        made.guidellm_run(rate=2.0),
        made.guidellm_run(strategy={"type_": "throughput", "rate": None}),
    ]
    loads, _ = read_result(written(tmp_path, made.guidellm(*runs)))
    assert [load.rate for load in loads] == [None, 2.0, float("inf")]


def test_aiperf_names_its_units_and_its_warm_up_is_no_rate(tmp_path):
    (load,), _ = read_result(written(tmp_path, made.aiperf(unit="sec")))
    assert load.tpot.median == pytest.approx(40.0)
    (load,), _ = read_result(written(tmp_path, made.aiperf(rate=None)))
    assert load.rate is None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "no result of a known load generator"),
        ([], "no result of a known load generator"),
        ({"benchmarks": []}, "no result of a known load generator"),
        ({**made.vllm(), "duration": None}, "damaged or incomplete"),
        ({**made.aiperf(), "was_cancelled": True}, "cancelled or not completed"),
        (made.guidellm({**made.guidellm_run(), "metrics": {}}), "damaged or incomplete: 'request_totals'"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, document, message):
    with pytest.raises(RecordError, match=message):
        read_result(written(tmp_path, document))


@pytest.mark.parametrize("tool", ["vllm", "guidellm", "aiperf"])
def test_a_file_that_was_cut_short_is_named(tmp_path, tool):
    path = written(tmp_path, getattr(made, tool)())
    path.write_text(path.read_text()[:-20])
    with pytest.raises(RecordError, match=r"result.json is cut short or no JSON. Run the load again."):
        read_result(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"cannot read .*nothing.json: No such file"):
        read_result(tmp_path / "nothing.json")
