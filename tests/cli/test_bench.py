"""``sere bench`` as a user calls it."""

import hashlib
import json

import pytest

from tests.bench.results import made
from tests.bench.results.test_results import written

SIZES = ("-b", 1, "-b", 4, "--rounds", 2, "--steps", 4, "--prompt-tokens", 8, "--threads", 1)


def test_decoding_side_by_side_and_its_page(sere, small, artifact, tmp_path):
    out = tmp_path / "bench"
    done = sere("bench", "decode", small, artifact, *SIZES, "-p", "sere:top_s=1", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "batch 4, transformers, 2 rounds" in done.stdout
    record = json.loads((out / "bench.json").read_text())
    found = {(each["variant"], each["batch_size"]): each for each in record["results"]}
    assert list(found)[:3] == [("unmodified", 1), ("none", 1), ("sere:top_s=1", 1)]
    one, none, policy = found["sere:top_s=1", 1], found["none", 4], found["sere:top_s=1", 4]
    assert one["experts"]["after"] == one["experts"]["before"] == 4
    assert none["experts"]["after"] == none["experts"]["before"] > policy["experts"]["after"] >= 4
    assert [layer["name"] for layer in policy["experts"]["layers"]] == [
        "model.layers.0.mlp.experts",
        "model.layers.1.mlp.experts",
    ]
    assert found["unmodified", 4]["ratio"] == {"median": 1, "low": 1, "high": 1}
    assert record["provenance"]["dtype"] == "float32"
    page = tmp_path / "page.html"
    assert sere("report", out / "bench.json", artifact, "--out", page).returncode == 0
    assert "Decoding in Transformers" in page.read_text()


def test_it_reads_as_many_experts_as_the_comparison(sere, small, artifact, tmp_path):
    policy = ("-p", "sere:top_s=1", "-b", 4)
    done = sere(
        *("bench", "decode", small, artifact, *policy, "--rounds", 1, "--steps", 22, "--warmup", 0),
        *("--prompt-tokens", 2, "--threads", 1, "--out", tmp_path / "bench", "--json"),
    )
    assert done.returncode == 0, done.stderr
    timed = {each["variant"]: each["experts"] for each in json.loads(done.stdout)["results"]}
    done = sere("compare", small, artifact, *policy, "--sequences", 4, "--length", 25, "--json")
    assert done.returncode == 0, done.stderr
    compared = {each["policy"]: each["experts"] for each in json.loads(done.stdout)["results"]}
    for variant in ("none", "sere:top_s=1"):
        for end in ("before", "after"):
            assert timed[variant][end] == pytest.approx(compared[variant][end], rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engine", "vlm"), "no engine 'vlm'"),
        (("--llm", "{"), "--llm is no JSON"),
        (("--llm", '{"seed": 1}'), "--llm is for --engine vllm"),
        (("-b", 0), "batch sizes must be 1 or more"),
        (("-p", "seer:top_s=1"), "no policy 'seer'"),
        (("--data", "nothing.txt"), "no file nothing.txt"),
    ],
)
def test_refusals_come_before_the_model(sere, small, tmp_path, arguments, message):
    done = sere("bench", "decode", small, "--out", tmp_path / "bench", *arguments)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_policy_without_its_artifact_is_refused(sere, small, tmp_path):
    done = sere("bench", "decode", small, "--out", tmp_path / "bench", "-p", "sere:top_s=1")
    assert done.returncode == 1
    assert "artifact" in done.stderr


def test_results_of_other_tools_become_a_record_and_a_page(sere, tmp_path):
    base, fast = (
        written(tmp_path, made.aiperf(), "base.json"),
        written(tmp_path, made.vllm(tpot=20), "f.json"),
    )
    out, page = tmp_path / "bench.json", tmp_path / "page.html"
    done = sere("bench", "read", f"unmodified={base}", f"sere:top_s=1={fast}", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "4 requests a second" in done.stdout
    assert "2.00" in done.stdout
    done = sere("report", out, "--out", page)
    assert done.returncode == 0, done.stderr
    assert f"unmodified at 4 requests/s: base.json (aiperf, SHA-256 {sha(base)[:12]})" in page.read_text()


def test_a_result_that_is_none_leaves_no_record(sere, tmp_path):
    out = tmp_path / "bench.json"
    done = sere("bench", "read", written(tmp_path, {}), "--out", out)
    assert done.returncode == 1
    assert "no result of a known load generator" in done.stderr
    assert not out.exists()


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
