"""Build the bundled calibration sample.

    python tools/demo_model/corpus.py CORPUS
    python tools/demo_model/sample.py CORPUS

takes documents of ``CORPUS/calibration.txt`` (which training never saw) and generated tasks with
their answers, both drawn by seed, mixes them, and writes ``src/sere/calibration/sample/calibration.txt``.
About a fifth of the text is tasks, since the bundled model was trained on both kinds.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from sere.demo.tasks import examples, heldout

SEED = 20_261_201
TEXT_CHARS = 310_000
TASK_CHARS = 78_000
OUT = Path(__file__).parents[2] / "src/sere/calibration/sample/calibration.txt"


def documents(corpus: Path, rng: random.Random) -> list[str]:
    """Documents of the corpus's calibration part, about :data:`TEXT_CHARS` characters."""
    texts = (corpus / "calibration.txt").read_text(encoding="utf-8").strip().split("\n\n")
    rng.shuffle(texts)
    return taken(texts, TEXT_CHARS)


def tasks(rng: random.Random) -> list[str]:
    """Prompts with their answers, one a document, none of them held out."""
    hidden = {example.prompt for example in heldout()}
    drawn = [example for example in examples(400, SEED) if example.prompt not in hidden]
    rng.shuffle(drawn)
    return taken([example.prompt + example.answer for example in drawn], TASK_CHARS)


def taken(texts: list[str], chars: int) -> list[str]:
    """Take the first texts that make up ``chars`` characters."""
    out, total = [], 0
    for text in texts:
        if total >= chars:
            break
        out.append(text)
        total += len(text) + 2
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    rng = random.Random(SEED)
    mixed = documents(parser.parse_args().corpus, rng) + tasks(rng)
    rng.shuffle(mixed)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n\n".join(mixed) + "\n", encoding="utf-8")
    print(f"{len(mixed)} documents, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
