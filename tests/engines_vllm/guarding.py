"""The guard ``auto`` on a real engine: ``python -m tests.engines_vllm.guarding FOLDER``; one JSON line.

FOLDER holds ``model`` and ``artifact``. The cost model says that steps of up to 4 rows do not pay.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from sere.artifact import Artifact, CostModel, PolicyCost, StepSize
from sere.provenance import device_name
from tests.engines_vllm.driver import SHORT, prompts, totals
from tests.engines_vllm.steps import generate, start

SIZES = (
    StepSize(rows=4, before=8, after=7, overhead=1e-3),
    StepSize(rows=5, before=8, after=4, overhead=1e-3),
)
TOKENS = 6


def cost() -> CostModel:
    """One expert takes a millisecond, so 1 ms is saved at 4 rows, and as much spent; at 5 rows 4 ms are."""
    return CostModel(
        device=device_name("cpu"),
        dtype="float32",
        expert_bytes=1_000_000,
        fixed=0.0,
        byte=1e-9,
        row=0.0,
        error=0.0,
        rows=(4, 5),
        policies=(PolicyCost(policy=SHORT, sizes=SIZES),),
    )


def decoded(llm: Any, requests: int) -> dict[str, Any]:
    """Serve so many requests; decoding counters, and the steps that were guarded."""
    llm.collective_rpc("sere_reset")
    generate(llm, prompts()[:requests], TOKENS)
    counters = llm.collective_rpc("sere_counters")[0]
    return {**totals(counters, "decode", "mixed"), "guarded": sorted(set(counters["guarded"].values()))}


def main() -> None:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        Artifact.from_pretrained(folder / "artifact").with_cost(cost()).save_pretrained(place)
        llm = start(folder, {"policy": SHORT, "artifact": place, "guard": "auto"})
    line = {"few": decoded(llm, 3), "many": decoded(llm, 8)}
    try:
        llm.collective_rpc("sere_switch", args=("top_k:k=1",))
    except Exception as error:  # the engine wraps it
        line["refused"] = str(error)
    print("RECORD " + json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
