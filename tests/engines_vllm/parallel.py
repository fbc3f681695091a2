"""Serve a small model with tensor parallel 2 and print what both ranks did.

``python -m tests.engines_vllm.parallel FOLDER`` where FOLDER holds ``model`` and ``artifact``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # functions are sent to the workers


def note_routes(worker: Any) -> None:
    """Hash every layer's ids, weights and kinds from now on, in this worker."""
    from sere.engines.vllm.rerouting import Rerouting

    original, digest = Rerouting.route, hashlib.sha256()
    worker.sere_noted = {"digest": digest, "calls": 0}

    def route(layer: Any, *given: Any) -> Any:
        out = original(layer, *given)
        for tensor in (layer.rows.of(out[0].shape[0]), *out):
            digest.update(layer.name.encode())
            digest.update(tensor.cpu().numpy().tobytes())
        worker.sere_noted["calls"] += 1
        return out

    Rerouting.route = route


def noted(worker: Any) -> tuple[str, int]:
    return worker.sere_noted["digest"].hexdigest(), worker.sere_noted["calls"]


def main() -> None:
    from vllm import LLM, SamplingParams

    from tests.engines_vllm.driver import POLICY, prompts

    folder = Path(sys.argv[1])
    llm = LLM(
        str(folder / "model"),
        dtype="float32",
        enforce_eager=True,
        skip_tokenizer_init=True,
        tensor_parallel_size=2,
        max_model_len=96,
        max_num_seqs=12,
        max_num_batched_tokens=64,
        gpu_memory_utilization=0.1,
        additional_config={"sere": {**POLICY, "artifact": str(folder / "artifact")}},
        seed=0,
    )
    llm.collective_rpc(note_routes)
    sampling = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, detokenize=False)
    outputs = llm.generate(prompts(), sampling, use_tqdm=False)
    line = {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "counters": llm.collective_rpc("sere_counters"),
        "noted": llm.collective_rpc(noted),
        "switched": llm.collective_rpc("sere_switch", args=("off",)),
    }
    print("RECORD " + json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
