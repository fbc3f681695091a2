"""Records that are unusable, or do not belong together, are refused by name."""

import json

import pytest

from sere.errors import ArtifactError, RecordError
from sere.report import render, write_report
from tests.report.conftest import RESULTS

DEMO = RESULTS / "demo.json"


def other_model(record):
    record["model"].update(id="another", fingerprint="0" * 16)


def test_records_of_two_models_are_refused(changed):
    with pytest.raises(
        RecordError, match=r"different models: demo.json is of sere-demo-moe .* another .*--mixed"
    ):
        render([DEMO, changed(other_model)])


def test_or_said_to_be_of_two(changed):
    page = render([DEMO, changed(other_model)], mixed=True)
    assert "These records are of different models (demo.json: sere-demo-moe" in page


def test_another_name_with_the_same_shape_is_said(changed):
    page = render([DEMO, changed(lambda record: record["model"].update(id="a finetune"))])
    assert "the same routing shape but different names" in page


def test_another_calibration_is_said(changed):
    page = render([DEMO, changed(lambda record: record.update(artifact="f" * 64))])
    assert "different calibrations of the model" in page
    assert "different calibrations" not in render([DEMO])


def test_random_weights_are_no_other_model_but_marked():
    page = render([DEMO, RESULTS / "vllm_float32.json"])
    assert "Speed on a stand-in is not the speed of the model itself" in page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "sere-comparison", "version": 1', "cut short or no JSON"),
        ("[]", "no record that a report can show"),
        ('{"kind": "sere-comparison", "version": 1}', "is damaged at provenance"),
        ('{"benchmark": "vllm_decode", "options": {}}', "is damaged: KeyError"),
        ('{"kind": "sere-demo", "version": 9}', "is damaged at version"),
    ],
)
def test_unusable_files(tmp_path, text, message):
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=message):
        render([path])


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(RecordError, match="cannot read"):
        render([tmp_path / "nothing.json"])
    with pytest.raises(RecordError, match="without an artifact"):
        render([tmp_path])
    with pytest.raises(RecordError, match="needs a record"):
        render([])
    with pytest.raises(RecordError, match="given twice"):
        render([DEMO, DEMO])
    with pytest.raises(RecordError, match="must be above 0"):
        render([DEMO], keep=2)


def test_a_damaged_artifact(tmp_path):
    (tmp_path / "sere.json").write_text("{")
    with pytest.raises(ArtifactError, match="truncated"):
        render([tmp_path])


def test_a_refusal_leaves_the_old_page(tmp_path):
    out = tmp_path / "report.html"
    out.write_text("old")
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"kind": "unknown"}))
    with pytest.raises(RecordError):
        write_report([bad], out)
    assert out.read_text() == "old"
