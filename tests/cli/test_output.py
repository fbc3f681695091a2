"""What is printed fits 80 columns, can be copied, and survives odd names and full disks."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest

from sere.errors import DataError
from sere.evaluation import ComparisonRecord

SHORT = ("-b", 2, "--sequences", 2, "--length", 24)


@pytest.fixture(scope="module")
def odd(small, artifact, tmp_path_factory):
    """A model and an artifact whose paths hold a blank, markup, an emoji's name and a foreign letter."""
    folder = tmp_path_factory.mktemp("odd") / "[a b] :smile: ü"
    shutil.copytree(small, folder / "[" / "model]")
    shutil.copytree(artifact, folder / "artifact")
    return folder / "[" / "model]", folder / "artifact"


@pytest.fixture
def tasks(tmp_path):
    """A task file of three prompts."""
    path = tmp_path / "sums.jsonl"
    path.write_text('{"prompt": "1+1=", "answer": "2"}\n' * 3, encoding="utf-8")
    return path


def test_tables_of_a_comparison_fit_eighty_columns_and_cut_nothing_off(sere, odd, tasks):
    shown = sere(
        "compare", *odd, *SHORT, "-p", "sere:top_s=1,threshold=0.25", "-p", "top_k:k=1,renormalise=false",
        "--tasks", tasks, "--speed-rounds", 1, COLUMNS="60",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert "…" not in shown.stdout
    assert ":smile:" in "".join(lines)
    assert max(map(len, lines)) <= 80
    assert "threshold=0.25" in shown.stdout
    caption = " ".join(line.strip() for line in lines)
    assert "exact answers to 3 prompts" in caption
    assert "sequences were live in a step" in caption


def test_one_sequence_has_no_interval(sere, small, artifact):
    options = ("-b", 1, "--sequences", 1, "--length", 24, "--speed-rounds", 0)
    shown = sere("compare", small, artifact, *options, "-p", "top_k:k=1")
    assert " to\n" not in shown.stdout
    assert "interval" not in shown.stdout


def test_a_path_in_brackets_is_no_markup(sere, odd):
    model, artifact = odd
    for arguments in (("doctor", model), ("inspect", artifact)):
        shown = sere(*arguments)
        assert shown.returncode == 0, shown.stderr


def test_the_next_command_can_be_pasted_into_a_shell(sere, odd, tmp_path):
    model, _ = odd
    out = tmp_path / "it's here"
    shown = sere("calibrate", model, "-o", out, "--sequences", 4, "--length", 32, COLUMNS="80")
    command = shown.stdout.splitlines()[-1].split("Next: ")[1]
    assert shlex.split(command) == ["sere", "compare", str(model), str(out), "--policy", "sere:top_s=2"]


def test_nobodys_file_is_touched_when_an_output_is_tried(sere, small, tmp_path):
    (tmp_path / ".sere-write-test").write_text("mine", encoding="utf-8")
    done = sere("calibrate", small, "-o", tmp_path, "--sequences", 4, "--length", 32)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".sere-write-test").read_text(encoding="utf-8") == "mine"


def test_a_record_that_cannot_be_written_is_printed_at_least(sere, small, artifact, tmp_path, monkeypatch):
    def full(*_arguments):
        raise DataError("cannot write it: No space left on device.")

    monkeypatch.setattr(ComparisonRecord, "save", full)
    options = (*SHORT, "--speed-rounds", 0, "-o", tmp_path / "record.json")
    done = sere("compare", small, artifact, *options, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["kind"] == "sere-comparison"
    assert "No space left" in done.stderr


def test_the_bundled_model_is_recorded_by_name_and_not_by_folder(sere, tasks):
    options = ("-b", 1, "--sequences", 1, "--length", 24, "--speed-rounds", 0, "-p", "none", "--tasks")
    done = sere("compare", "demo", *options, tasks, "--json")
    assert json.loads(done.stdout)["model"]["id"] == "sere-demo-moe"


def test_a_warning_is_one_line_without_code(sere, small, artifact):
    done = sere("compare", small, artifact, *SHORT, "--speed-rounds", 0, "-p", "sere:top_s=4")
    said = [line for line in done.stderr.splitlines() if "changes nothing" in line]
    assert len(said) == 1
    assert said[0].startswith("sere: sere: top_s=4")
    assert ".py" not in said[0]


def test_doctor_names_what_is_not_re_routed(sere, small, monkeypatch):
    from sere.engines.transformers import layers

    found = layers.survey

    def partly(model):
        return layers.Survey(found(model).layers, {"mtp.experts": "it drafts tokens"})

    monkeypatch.setattr(layers, "survey", partly)
    assert "not re-routed: mtp.experts: it drafts tokens" in sere("doctor", small).stdout
    assert json.loads(sere("doctor", small, "--json").stdout)["model"]["skipped"] == {
        "mtp.experts": "it drafts tokens"
    }
