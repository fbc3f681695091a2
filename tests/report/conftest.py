"""Records as the commands write them, and the page of all that are committed."""

import json
from pathlib import Path

import pytest

from sere.report import render

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECORDS = ("demo.json", "compare_demo.json", "vllm_float32.json", "vllm_bfloat16.json")


@pytest.fixture(scope="session")
def paths():
    return [*(RESULTS / name for name in RECORDS), RESULTS / "demo-artifact"]


@pytest.fixture(scope="session")
def page(paths):
    return render(paths)


@pytest.fixture(scope="session")
def demo():
    return json.loads((RESULTS / "demo.json").read_text())


@pytest.fixture
def changed(tmp_path, demo):
    """Write a comparison that differs from the demonstration's as ``change`` says."""

    def write(change, name="changed.json"):
        record = json.loads(json.dumps(demo["comparison"]))
        change(record)
        path = tmp_path / name
        path.write_text(json.dumps(record))
        return path

    return write
