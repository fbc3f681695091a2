"""Choose the bundled held-out text from the corpus.

    python tools/demo_model/heldout.py CORPUS/heldout.txt src/sere/demo/heldout.txt

keeps whole documents, in the order of a hash of their text so that both sources are mixed, up to
about 100 KB.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

CHARACTERS = 100_000


def choose(blocks: list[str]) -> list[str]:
    order = sorted(blocks, key=lambda block: hashlib.sha256(block.encode()).hexdigest())
    chosen, size = [], 0
    for block in order:
        if size + len(block) > CHARACTERS:
            break
        chosen.append(block)
        size += len(block) + 2
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    blocks = [block.strip() for block in args.corpus.read_text(encoding="utf-8").split("\n\n")]
    args.out.write_text("\n\n".join(choose([block for block in blocks if block])) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
