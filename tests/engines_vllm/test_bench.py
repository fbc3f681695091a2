"""``sere bench decode`` through vLLM, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
OPTIONS = ("-b", "4", "-b", "1", "--steps", "6", "--prompt-tokens", "8", "-p", "sere:top_s=1", "--llm")


def bench(small_model, out, *more):
    model, artifact = small_model / "model", small_model / "artifact"
    words = [sys.executable, "-m", "sere", "bench", "decode", str(model), str(artifact), "--engine", "vllm"]
    return subprocess.run(
        [*words, *OPTIONS, '{"enforce_eager": true}', "--dtype", "float32", "--out", str(out), *more],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )


def test_variants_are_switched_in_turns_and_counted_by_the_plugin(small_model, tmp_path):
    done = bench(small_model, tmp_path, "--rounds", "2")
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads((tmp_path / "bench.json").read_text())
    assert (record["engine"], record["provenance"]["device"], record["provenance"]["dtype"]) == (
        "vllm",
        "cpu",
        "float32",
    )
    found = {(each["variant"], each["batch_size"]): each for each in record["results"]}
    plain, none, policy = (found[name, 4] for name in ("unmodified", "none", "sere:top_s=1"))
    assert plain["experts"] is None
    assert none["experts"]["before"] == none["experts"]["after"] > policy["experts"]["after"]
    assert none["experts"]["rerouted"] == 0 < policy["experts"]["rerouted"]
    alone = found["sere:top_s=1", 1]["experts"]
    assert alone["before"] == alone["after"]
    assert all(each["rounds"] == 2 and each["step_ms"]["low"] > 0 for each in found.values())
    assert [turn["variant"] for turn in record["rounds"][1]["turns"]] == [
        "none",
        "sere:top_s=1",
        "unmodified",
    ]
