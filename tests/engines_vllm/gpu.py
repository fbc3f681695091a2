"""Serve a small model with captured graphs: ``python -m tests.engines_vllm.gpu FOLDER MODE``.

MODE is vLLM's ``cudagraph_mode``, or ``EAGER``. Prints one JSON line: without the plugin, under ``none``,
under ``sere``, and after ``sere`` was switched off. Without a GPU, ``EAGER`` runs too.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
GRAPH_SIZES = [1, 2, 4, 8, 16, 32, 64]


def main() -> None:
    from tests.engines_vllm.driver import POLICY, SHORT, ask, build, start, totals
    from tests.engines_vllm.families import GPU

    folder, mode = Path(sys.argv[1]), sys.argv[2]
    if not (folder / "model").is_dir():
        build(folder, GPU)
    eager = mode == "EAGER"
    options: dict[str, Any] = {"kv_cache_memory_bytes": 2**28}
    if not eager:
        options["compilation_config"] = {"cudagraph_mode": mode, "cudagraph_capture_sizes": GRAPH_SIZES}

    def engine(sere: dict[str, Any] | None) -> Any:
        key = None if sere is None else {**sere, "artifact": str(folder / "artifact")}
        return start(folder, GPU.dtype, eager, key, **options)

    plain, _ = ask(engine(None), False)
    none, untouched = ask(engine({"policy": "none"}), True)
    llm = engine(POLICY)
    moved, counters = ask(llm, True)
    llm.collective_rpc("sere_switch", args=("off",))
    off, switched_off = ask(llm, True)
    try:
        llm.collective_rpc("sere_switch", args=(SHORT,))
        refusal = None
    except Exception as error:  # whatever the executor makes of it
        refusal = str(error)
    line = {
        "plain": plain,
        "none": none,
        "sere": moved,
        "off": off,
        "none counted": totals(untouched, "decode", "mixed"),
        "counted": totals(counters, "decode", "mixed"),
        "prefill counted": totals(counters, "prefill"),
        "off counted": totals(switched_off, "decode", "mixed", "prefill"),
        "refusal": refusal,
    }
    print("RECORD " + json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
