"""Tuning as a user meets it."""

from __future__ import annotations

import json
import shutil

import pytest

SMALL = [
    "-b",
    4,
    "--sequences",
    4,
    "--length",
    24,
    "--prompt",
    4,
    "--shares",
    4,
    "-r",
    "sere",
    "-r",
    "energy",
]


def test_tune_writes_points_that_compare_takes_by_name(sere, small, artifact, tmp_path):
    copy, out = tmp_path / "artifact", tmp_path / "tune"
    shutil.copytree(artifact, copy)
    done = sere("tune", small, copy, "-t", "kl<=0.001", "-o", out, *SMALL)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in out.iterdir()} == {"tune.json", "points.jsonl"}
    record = json.loads((out / "tune.json").read_text())
    assert record["recommended"] in ("careful", "balanced", "fast")
    for shown in ("Operating points for kl<=0.001", f"Recommended: {record['recommended']}", "sere serve"):
        assert shown in done.stdout
    points = json.loads((copy / "sere.json").read_text())["operating_points"]
    assert points["fast"]["policy"] == next(p["policy"] for p in record["points"] if p["name"] == "fast")
    assert points["fast"]["tuned"]["tolerance"] == "kl<=0.001"

    compared = sere("compare", small, copy, "-p", "fast", "-b", 4, "--mode", "proxy", "--sequences", 4,
                    "--length", 24, "--speed-rounds", 0, "--json")  # fmt: skip
    assert compared.returncode == 0, compared.stderr
    assert "fast" in {each["policy"] for each in json.loads(compared.stdout)["results"]}


def test_where_nothing_keeps_the_tolerance_the_unmodified_model_is_recommended(
    sere, small, artifact, tmp_path
):
    saved = tmp_path / "saved"
    done = sere("tune", small, artifact, "-t", "kl<=1e-12", "-o", tmp_path / "out", "--save", saved, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "Serve the unmodified model" in done.stdout
    assert json.loads((saved / "sere.json").read_text())["operating_points"] == {}
    assert json.loads((artifact / "sere.json").read_text())["operating_points"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "kl>=1"], "Write kl<=1"),
        (["-t", "kl<=1", "--traffic", "4:x"], "cannot be read"),
        (["-t", "kl<=1", "-r", "seer"], "Did you mean 'sere'"),
        (["-t", "kl<=1", "-b", 4096], "Give more text"),
        (["-t", "kl<=1", "--data", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_what_cannot_be_tuned_ends_with_code_1(sere, small, artifact, tmp_path, arguments, message):
    ended = sere("tune", small, artifact, "-o", tmp_path / "out", *arguments)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert not (tmp_path / "out" / "points.jsonl").exists()
