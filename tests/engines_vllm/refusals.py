"""Ask for engines that must not start, one after the other in one process.

``python -m tests.engines_vllm.refusals FOLDER`` where FOLDER holds ``model`` and ``artifact``; one JSON line
for each: its name and the error's text, or null if it started.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"


def dense(folder: Path) -> Path:
    """Save a model without experts."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from tests.engines_vllm.families import COMMON, DENSE

    config = AutoConfig.for_model("qwen3", **COMMON, **DENSE, head_dim=32)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "dense")
    return folder / "dense"


def other(folder: Path) -> Path:
    """Save an artifact of another model."""
    from tests.engines_vllm.driver import build
    from tests.engines_vllm.families import FAMILIES

    (folder / "other").mkdir()
    build(folder / "other", FAMILIES["olmoe"])
    return folder / "other" / "artifact"


def refusal(model: Path, sere: Any) -> str | None:
    from vllm import LLM

    try:
        LLM(
            str(model),
            dtype="float32",
            enforce_eager=True,
            skip_tokenizer_init=True,
            max_model_len=96,
            gpu_memory_utilization=0.2,
            additional_config={"sere": sere},
            seed=0,
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> None:
    folder = Path(sys.argv[1])
    model, artifact = folder / "model", str(folder / "artifact")
    cases: dict[str, tuple[Path, Any]] = {
        "unknown key": (model, {"artefact": artifact}),
        "no object": (model, None),
        "wrong type": (model, {"artifact": artifact, "top_s": "2"}),
        "unknown policy": (model, {"artifact": artifact, "policy": "seer"}),
        "no artifact": (model, {"policy": "sere"}),
        "missing artifact": (model, {"artifact": str(folder / "gone")}),
        "unknown metric": (model, {"artifact": artifact, "metric": "cka"}),
        "artifact of another model": (model, {"artifact": str(other(folder))}),
        "dense model": (dense(folder), {"policy": "top_k"}),
    }
    for name, (served, sere) in cases.items():
        print("RECORD " + json.dumps({"case": name, "error": refusal(served, sere)}), flush=True)


if __name__ == "__main__":
    main()
