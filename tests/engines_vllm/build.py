"""Save small random models with artifacts: ``python -m tests.engines_vllm.build FOLDER FAMILY``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.engines_vllm.driver import build
from tests.engines_vllm.families import FAMILIES

if __name__ == "__main__":
    build(Path(sys.argv[1]), FAMILIES[sys.argv[2]])
