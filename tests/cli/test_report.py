"""``sere report`` as a user calls it."""

import json
from pathlib import Path

DEMO = Path(__file__).parents[2] / "docs" / "results" / "demo.json"


def test_it_writes_the_page_and_says_where(sere, tmp_path):
    out = tmp_path / "page.html"
    done = sere("report", DEMO, "--out", out, "--json", "--title", "Tuesday's run")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said == {"report": str(out), "bytes": out.stat().st_size, "records": [str(DEMO)]}
    assert "<h1>Tuesday&#39;s run</h1>" in out.read_text()


def test_a_record_that_is_none_is_refused_with_what_to_do(sere, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    done = sere("report", bad, "--out", tmp_path / "page.html")
    assert done.returncode == 1
    assert "no record that a report can show" in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_model_that_is_not_ours_from_calibration_to_the_page(sere, small, artifact, tmp_path):
    record, out = tmp_path / "compare.json", tmp_path / "page.html"
    sizes = ("--mode", "proxy", "-b", 4, "--sequences", 8, "--length", 24, "--speed-rounds", 1)
    done = sere("compare", small, artifact, *sizes, "--out", record)
    assert done.returncode == 0, done.stderr
    done = sere("report", record, artifact, "--out", out)
    assert done.returncode == 0, done.stderr
    page = out.read_text()
    assert f"<h1>Re-routing {small.name}</h1>" in page
    assert "Distinct experts by layer at batch 4" in page
    assert "Similarity of the 8 experts of layer 1" in page
    assert "sere compare" in page
