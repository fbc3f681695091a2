"""The pages show what the committed records say, and their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_the_tables_are_those_of_the_record():
    done = subprocess.run(
        [sys.executable, "tools/result_tables.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run python tools/result_tables.py\n{done.stdout}{done.stderr}"
    for name in ("demo-loss", "demo-speed", "demo-setting"):
        assert f"<!-- {name} -->" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    missing = [
        target
        for target in targets
        if not target.startswith(("http://", "https://")) and not (page.parent / target).exists()
    ]
    assert not missing


def test_the_pictures_are_what_the_code_gives():
    done = subprocess.run(
        [sys.executable, "tools/concept_pictures.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run python tools/concept_pictures.py\n{done.stdout}{done.stderr}"


def test_every_page_is_in_the_sites_contents():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [page.name for page in PAGES[1:] if f"- {page.name}" not in site]
    assert not missing
