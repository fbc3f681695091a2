"""``sere inspect`` as a user meets it."""

from __future__ import annotations

import json
import shutil

import pytest

from sere.cli.output import NARROWEST


@pytest.fixture(scope="module")
def other(sere, small, tmp_path_factory):
    """The small model calibrated on other sequences."""
    folder = tmp_path_factory.mktemp("artifacts") / "other"
    done = sere("calibrate", small, "--out", folder, "--sequences", 8, "--length", 32, "--seed", 5)
    assert done.returncode == 0, done.stderr
    return folder


def test_everything_fits_eighty_columns_and_nothing_is_cut_off(sere, artifact, other):
    shown = sere("inspect", artifact, "-l", "all", "-t", 0.3, "-t", 0.5, "--against", other, COLUMNS="60")
    assert shown.returncode == 0, shown.stderr
    assert "…" not in shown.stdout
    wide = [line for line in shown.stdout.splitlines() if len(line) > NARROWEST]
    assert all(line.startswith(("made", "layer ", "model", "against")) for line in wide)
    for words in ("Critical experts", "Clusters", "Layer 1:", "Agreement of the two", "It matters"):
        assert words in shown.stdout


def test_json_has_everything(sere, artifact, other, tmp_path):
    shown = sere("inspect", artifact, "--json", "--against", other, "-l", 1, "-t", 0.4, "--png", tmp_path)
    found = json.loads(shown.stdout)
    (layer,) = found["layers"]
    assert layer["index"] == 1
    assert layer["critical_at"][0]["threshold"] == 0.4
    assert sum(layer["spread"]["counts"]) == 28
    assert len(layer["substitutes"]) == 8
    assert sorted(layer["clusters"]["tree"]["order"]) == list(range(8))
    assert {"mean", "pairs", "critical", "hub"} <= set(layer)
    (against,) = found["against"]["layers"]
    assert [choice["active"] for choice in against["agreement"]["choices"]] == [7, 4]
    assert found["against"]["hash"] != found["hash"]
    assert found["meaning"]
    assert found["against"]["meaning"]
    assert [tmp_path / name for name in ("layer-01.png", "against.png")] == [
        tmp_path / path for path in found["pictures"]
    ]


def test_it_says_whether_there_are_moments_of_routed_tokens(sere, artifact, small, tmp_path):
    options = ("--sequences", 8, "--length", 32, "--routed-moments", "--norm-predictor")
    done = sere("calibrate", small, "--out", tmp_path / "routed", *options)
    assert done.returncode == 0, done.stderr
    shown = sere("inspect", tmp_path / "routed").stdout
    assert "routed moments   yes" in shown
    assert "norm predictor   yes" in shown
    assert "Routed tokens" in shown
    assert "routed moments   no" in sere("inspect", artifact).stdout
    (first, _) = json.loads(sere("inspect", tmp_path / "routed", "--json").stdout)["layers"]
    assert first["routed"]["pairs"] == 28
    assert 0 < first["routed"]["met"] <= 28
    assert 0 < first["routed"]["fewest"] <= 8 * 32
    (first, _) = json.loads(sere("inspect", artifact, "--json").stdout)["layers"]
    assert first["routed"] is None


def test_an_artifact_against_itself_holds_the_same_numbers(sere, artifact):
    shown = sere("inspect", artifact, "--against", artifact, "--json")
    found = json.loads(shown.stdout)["against"]
    assert found["meaning"] == ["The two artifacts hold the same numbers."]
    assert {round(c["same"], 9) for layer in found["layers"] for c in layer["agreement"]["choices"]} == {1.0}


def test_letters_stand_in_where_the_terminal_has_no_blocks(artifact, monkeypatch, capsys):
    from rich.console import Console

    from sere.artifact import Artifact
    from sere.cli import inspect_maps, inspect_tables
    from sere.inspection import inspect

    class Plain(Console):
        encoding = "ascii"

    def plain_console():
        return Plain(width=80)

    monkeypatch.setattr(inspect_maps, "console", plain_console)
    monkeypatch.setattr(inspect_tables, "console", plain_console)
    loaded = Artifact.from_pretrained(artifact)
    inspect_tables.show(inspect(loaded))
    inspect_maps.show(loaded, inspect(loaded))
    assert capsys.readouterr().out.isascii()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layer", "9"], "no layer number 9"),
        (["--layer", "first"], "not 'first'"),
        (["--layer", "-1"], "not '-1'"),
        (["--threshold", "0"], "a threshold of 0"),
        (["--threshold", "nan"], "a threshold of nan"),
        (["--clusters", "9"], "8 experts cannot make 9"),
        (["--metric", "cka_rbf_biased"], "cannot serve metric"),
        (["--mixed"], "--against"),
        (["--png", "/proc/maps"], "/proc/maps"),
        (["--against", "{missing}"], "no folder with an artifact"),
        (["--against", "{demo}"], "different shape"),
        (["--against", "{damaged}"], "truncated, changed"),
    ],
)
def test_bad_input_ends_with_code_1_and_one_line_that_helps(sere, artifact, tmp_path, arguments, message):
    from pathlib import Path

    damaged = tmp_path / "damaged"
    shutil.copytree(artifact, damaged)
    (damaged / "sere.safetensors").write_bytes(b"x")
    demo = Path(__file__).parents[2] / "docs/results/demo-artifact"
    places = {"missing": tmp_path / "nothing", "demo": demo, "damaged": damaged}
    ended = sere("inspect", artifact, *(argument.format(**places) for argument in arguments))
    assert ended.returncode == 1
    assert ended.stdout == ""
    complaint = [line for line in ended.stderr.splitlines() if line.startswith("sere: ")]
    assert len(complaint) == 1
    assert message in complaint[0]
    assert "Traceback" not in ended.stderr


def test_models_of_another_name_are_refused_unless_mixed(sere, artifact, other, tmp_path):
    renamed = tmp_path / "renamed"
    shutil.copytree(other, renamed)
    manifest = json.loads((renamed / "sere.json").read_text())
    manifest["model"]["id"] = "somebody/tuned"
    (renamed / "sere.json").write_text(json.dumps(manifest))
    refused = sere("inspect", artifact, "--against", renamed)
    assert refused.returncode == 1
    assert "somebody/tuned" in refused.stderr
    assert sere("inspect", artifact, "--against", renamed, "--mixed").returncode == 0
