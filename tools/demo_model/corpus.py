"""Build the text corpus of the bundled model from two openly licensed Debian packages.

* ``python3.11-doc``: the reST sources of the Python documentation (PSF licence 2).
* ``bible-kjv-text``: the King James Bible (public domain), read through the ``bible`` command of
  ``bible-kjv``.

    python tools/demo_model/corpus.py OUT_DIR

downloads them with ``apt-get download``, unpacks them (nothing is installed), keeps prose
paragraphs, and writes ``train.txt``, ``calibration.txt`` and ``heldout.txt``, one document a
paragraph block, blocks separated by a blank line. Which split a block belongs to follows from a
hash of its text, so the splits do not change with the order of files.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

PACKAGES = ("python3.11-doc", "bible-kjv-text", "bible-kjv")
FOLDERS = ("tutorial", "howto", "faq", "reference", "library", "using", "extending", "c-api")
BLOCK_CHARS = 600
HELDOUT_SHARE = 0.02
CALIBRATION_SHARE = 0.08


def unpack(into: Path) -> None:
    """Download the packages and unpack their files below ``into``."""
    subprocess.run(["apt-get", "download", *PACKAGES], cwd=into, check=True)
    for package in sorted(into.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(into / "root")], check=True)


def python_docs(root: Path) -> list[list[str]]:
    """Prose paragraphs of the Python documentation, one list a source file."""
    sources = root / "usr/share/doc/python3.11/html/_sources"
    files = [path for folder in FOLDERS for path in sorted((sources / folder).rglob("*.txt"))]
    return [_prose(path.read_text(encoding="utf-8")) for path in files]


def _prose(text: str) -> list[str]:
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in paragraph.splitlines()]
        joined = " ".join(line for line in lines if line)
        markup = joined.startswith((".. ", ">>>", "|", "+-", ":", "* :", "#")) or "::" in joined
        joined = re.sub(r":[a-zA-Z:+]+:`~?!?([^`<]*?)(?:\s*<[^`>]*>)?`", r"\1", joined)
        joined = joined.replace("``", "").replace("**", "").replace("`", "'")
        letters = sum(ch.isalpha() or ch == " " for ch in joined)
        ascii_only = joined.isascii()
        if not markup and ascii_only and len(joined) > 80 and letters > 0.9 * len(joined):
            kept.append(joined)
    return kept


def king_james(root: Path) -> list[list[str]]:
    """Verses of the King James Bible without their numbers, one list for the whole book."""
    run = subprocess.run(
        [str((root / "usr/bin/bible").resolve()), "-f", "-p", str(root / "usr/lib"), "gen1:1-rev22:21"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    verses = [re.sub(r"^\S+:\d+\s*", "", line) for line in run.stdout.splitlines()]
    return [[" ".join(verse.split()) for verse in verses if verse.strip()]]


def blocks(paragraphs: list[str]) -> list[str]:
    """Join consecutive paragraphs into documents of about :data:`BLOCK_CHARS` characters."""
    out, current = [], ""
    for paragraph in paragraphs:
        current = f"{current} {paragraph}".strip()
        if len(current) >= BLOCK_CHARS:
            out.append(current)
            current = ""
    return out


def split_of(block: str) -> str:
    """Name of the split that ``block`` belongs to, from a hash of its text."""
    share = int.from_bytes(hashlib.sha256(block.encode()).digest()[:4], "big") / 2**32
    if share < HELDOUT_SHARE:
        return "heldout"
    return "calibration" if share < HELDOUT_SHARE + CALIBRATION_SHARE else "train"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    splits: dict[str, list[str]] = {"train": [], "calibration": [], "heldout": []}
    with tempfile.TemporaryDirectory() as folder:
        unpack(Path(folder))
        root = Path(folder) / "root"
        for document in (*python_docs(root), *king_james(root)):
            for block in blocks(document):
                splits[split_of(block)].append(block)
    for name, texts in splits.items():
        (out / f"{name}.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
        print(f"{name}: {len(texts)} documents, {sum(map(len, texts)):,} characters")


if __name__ == "__main__":
    main()
