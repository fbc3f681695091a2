"""``python -m sere.engines.vllm MODEL SETTINGS ...``: ``vllm serve`` with SETTINGS, JSON, as the key."""

from __future__ import annotations

import json
import sys

from sere.engines.vllm.serve import run

if __name__ == "__main__":
    run(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:])
