"""``sere eval`` as a user meets it."""

from __future__ import annotations

import json

import pytest

SMALL = ["-b", 4, "--limit", 2, "--threads", 1]


def test_eval_prints_tables_and_writes_a_record(sere, small, artifact, tmp_path):
    out = tmp_path / "eval"
    first = sere("eval", small, artifact, "-t", "sere_add,sere_copy", "-p", "sere:top_s=1", "-o", out, *SMALL)
    assert first.returncode == 0, first.stderr
    for shown in ("sere_add", "sere_copy", "retained", "McNemar", "eval.json"):
        assert shown in first.stdout
    again = sere(
        "eval", small, artifact, "-t", "sere_add,sere_copy", "-p", "sere:top_s=1", "-o", out, "--json", *SMALL
    )
    record = json.loads(again.stdout)
    assert (record["kind"], record["measured"], len(record["results"])) == ("sere-eval", 0, 6)
    assert record["provenance"]["versions"]["lm_eval"]
    assert record["provenance"]["artifact"] == record["artifact"] is not None

    # What it writes in the harness's form is read as the harness's own is.
    own = out / "harness"
    [policy] = [path for path in own.iterdir() if path.name.startswith("sere-")]
    read = sere(
        "eval", small, artifact, "--from", f"unmodified={own / 'unmodified_4'}",
        "--from", f"sere:top_s=1={policy}", "-b", 4, "-o", tmp_path / "read", "--json",
    )  # fmt: skip
    assert read.returncode == 0, read.stderr
    pairs = {
        (r["task"], r["policy"]): r["paired"] for r in record["results"] if r["policy"] == "sere:top_s=1"
    }
    again = json.loads(read.stdout)
    assert {(r["task"], r["policy"]): r["paired"] for r in again["results"] if r["paired"]} == pairs
    assert (tmp_path / "read" / "eval.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "sere_ad"], "Did you mean 'sere_add'"),
        (["-t", ","], "there are no tasks"),
        (["--gen", "temperature"], "no setting"),
        (["-p", "seer"], "Did you mean 'sere'"),
        (["--scoring", "prompt"], "phase=all"),
        (["--from", "nowhere"], "no POLICY=FOLDER"),
        (["--chat", "-t", "sere_add"], "no chat template"),
    ],
)
def test_what_cannot_be_evaluated_ends_with_code_1(sere, small, artifact, tmp_path, arguments, message):
    ended = sere("eval", small, artifact, "-o", tmp_path / "out", *SMALL, *arguments)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert not (tmp_path / "out" / "eval.json").exists()
