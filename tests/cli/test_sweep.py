"""The sweep as a user meets it."""

from __future__ import annotations

import json

import pytest

SMALL = ["-b", 4, "--at", 4, "--seeds", 2, "--sequences", 4, "--length", 24, "--prompt", 4]


def test_sweep_writes_record_tables_and_picture_and_goes_on_where_it_was(sere, small, artifact, tmp_path):
    out = tmp_path / "sweep"
    first = sere("sweep", small, artifact, "-o", out, "-r", "sere", "-r", "top_k", *SMALL)
    assert first.returncode == 0, first.stderr
    assert "2 series, 6 settings, 1 batch sizes, 2 seeds" in first.stderr
    for shown in ("KL at 50%", "Least KL at equal distinct experts", "in other company"):
        assert shown in first.stdout
    files = {"sweep.json", "sweep.md", "sweep.svg", "sweep.png", "points.jsonl", "company.jsonl"}
    assert {path.name for path in out.iterdir()} == files
    record = json.loads((out / "sweep.json").read_text())
    assert (record["points"], record["measured"]) == (14, 14)

    again = sere("sweep", small, artifact, "-o", out, "-r", "sere", "-r", "oea", "--json", *SMALL)
    assert again.returncode == 0, again.stderr
    record = json.loads(again.stdout)
    assert (record["points"], record["measured"]) == (14, 6)
    assert {setting["series"] for setting in record["settings"]} == {"none", "sere", "oea"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-r", "seer"], "Did you mean 'sere'"),
        (["-b", 4, "--at", 16], "none of the batch sizes 4"),
        (["--sequences", 0], "sequences must be 1 or more"),
        (["--length", 10], "nothing to score"),
        (["--tasks", "nowhere.jsonl"], "cannot be read"),
        (["-b", 16, "--seeds", 100], "Give more text"),
    ],
)
def test_what_cannot_be_swept_ends_with_code_1(sere, small, artifact, tmp_path, arguments, message):
    ended = sere("sweep", small, artifact, "-o", tmp_path / "out", *arguments)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert not (tmp_path / "out" / "points.jsonl").exists()
