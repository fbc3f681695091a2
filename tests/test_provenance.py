"""What a record says about its run."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from sere.artifact import Artifact
from sere.evaluation.stepwise import ExpertCount
from sere.evaluation.summarise import experts_record
from sere.provenance import Provenance, git_revision
from sere.routing import FIELDS

ROOT = Path(__file__).parents[1]


def test_it_says_where_and_with_what():
    run = Provenance.now(fingerprint="abc", artifact="def", seeds={"texts": 3}, device="cpu", dtype="float32")
    assert run.versions["torch"] == torch.__version__
    assert run.cores >= 1
    assert run.memory_gib > 0.5
    assert (run.fingerprint, run.artifact, run.seeds) == ("abc", "def", {"texts": 3})
    assert Provenance.model_validate_json(run.model_dump_json()) == run


def test_the_commit_is_that_of_the_checkout_alone(tmp_path):
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    if commit.returncode == 0:
        assert git_revision().removesuffix("+changes") == commit.stdout.strip()
    # A package that lies in somebody else's repository does not claim that commit.
    package = tmp_path / "sere"
    package.mkdir()
    for name in ("__init__.py", "provenance.py", "version.py"):
        (package / name).write_text((ROOT / "src/sere" / name).read_text() if name != "__init__.py" else "")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    script = "import sere.provenance as p; print(p.git_revision())"
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
    )
    assert told.stdout.strip() == "None"


def test_old_records_without_the_new_fields_are_read():
    record = json.loads((ROOT / "docs/results/demo.json").read_text())
    old = dict(record["comparison"]["provenance"])
    for name in ("git_revision", "cores", "seeds", "fingerprint"):
        old.pop(name, None)
    run = Provenance.model_validate(old)
    assert run.git_revision is None
    assert run.seeds == {}


def test_experts_are_counted_by_layer_too():
    count = ExpertCount()
    fields = dict.fromkeys(FIELDS, 0)
    first = {**fields, "steps": 2, "experts_before": 20, "experts_after": 8, "slots": 4, "rerouted": 1}
    second = {**first, "experts_before": 10}
    count.add_all({"a": first, "b": second})
    count.add_all({"a": first, "b": second})
    record = experts_record(count, 16)
    assert [(layer.name, layer.before, layer.after) for layer in record.layers] == [("a", 10, 4), ("b", 5, 4)]
    assert record.before == 7.5


def test_a_calibration_says_so_as_well():
    made = Artifact.from_pretrained(ROOT / "docs/results/demo-artifact").manifest.calibration
    assert made.provenance is not None
    assert made.provenance.fingerprint == "534afdebe1978bc5"
    assert made.provenance.seeds == {"order of the sequences": 0}
