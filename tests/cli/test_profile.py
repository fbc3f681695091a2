"""``sere profile`` as a user meets it."""

from __future__ import annotations

import json
import shutil

import pytest

from sere.artifact import Artifact

SMALL = ["-b", 1, "-b", 4, "--levels", 2, "--rounds", 1]


def test_profile_prints_predictions_and_writes_them_into_the_artifact(sere, small, artifact, tmp_path):
    own, out = tmp_path / "artifact", tmp_path / "profile.json"
    shutil.copytree(artifact, own)
    shown = sere("profile", small, own, "-p", "sere:top_s=1", *SMALL, "--write", "--out", out)
    assert shown.returncode == 0, shown.stderr
    for words in ("Decoding steps on", "Fitted:", "Predicted", "sere:top_s=1", "speed-up"):
        assert words in shown.stdout
    record = json.loads(out.read_text())
    (cost,) = Artifact.from_pretrained(own).costs
    assert cost.model_dump(mode="json") == record["cost"]
    assert Artifact.from_pretrained(own).hash == Artifact.from_pretrained(artifact).hash
    assert {path.name for path in own.iterdir()} == {path.name for path in artifact.iterdir()}


def test_profile_without_an_artifact_prints_json(sere, small):
    shown = sere("profile", small, *SMALL, "--json")
    assert shown.returncode == 0, shown.stderr
    record = json.loads(shown.stdout)
    assert record["kind"] == "sere-profile"
    assert [policy["policy"] for policy in record["cost"]["policies"]] == ["none", "top_k:k=1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{small}", "--write"], "--write needs the folder"),
        (["{small}", "-b", "4"], "two or more different batch sizes"),
        (["{small}", "-p", "sere:top_s=1"], "needs an artifact"),
        (["{small}", "--data", "nowhere.txt"], "no file nowhere.txt"),
        (["{dense}"], "is dense"),
        (["demo", "{artifact}"], "was made for"),
    ],
)
def test_what_cannot_be_profiled_ends_with_code_1(sere, small, dense, artifact, arguments, message):
    places = {"small": small, "dense": dense, "artifact": artifact}
    ended = sere("profile", *(argument.format(**places) for argument in arguments))
    assert ended.returncode == 1
    assert message in ended.stderr
