"""Decode held-out tasks with the bundled model under Transformers and under vLLM, 16 sequences live.

``python -m tests.engines_vllm.bundled FOLDER`` prints the answers of both engines, unmodified and re-routed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
POLICY = "sere:top_s=1"
COUNT, LIVE = 300, 16


def main() -> None:
    from vllm import LLM, SamplingParams

    import sere
    from sere.calibration import CalibrationConfig, calibrate
    from sere.demo.model import bundled_model, load
    from sere.demo.tasks import heldout
    from sere.evaluation.greedy import decode_greedily

    folder = Path(sys.argv[1])
    model, tokenizer = load()
    artifact = calibrate(model, tokenizer, config=CalibrationConfig(sequences=64, sequence_length=128))
    artifact.save_pretrained(folder)
    asked = heldout()[:COUNT]
    prompts = [tokenizer(example.prompt)["input_ids"] for example in asked]
    budgets = [len(tokenizer(example.answer)["input_ids"]) + 1 for example in asked]
    answers: dict[str, list[list[int]]] = {}
    answers["transformers none"] = decode_greedily(model, tokenizer, prompts, budgets, LIVE).tokens
    with sere.rerouted(model, artifact, POLICY) as handle:
        answers["transformers sere"] = decode_greedily(model, tokenizer, prompts, budgets, LIVE).tokens
        distinct = {"transformers": handle.counters().distinct_after}
    del model
    llm = LLM(
        str(bundled_model()),
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=LIVE,
        gpu_memory_utilization=0.2,
        additional_config={"sere": {"artifact": str(folder), "policy": "none"}},
        seed=0,
    )

    def served() -> list[list[int]]:
        sampling: list[Any] = [SamplingParams(temperature=0, max_tokens=budget) for budget in budgets]
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        ends = {tokenizer.eos_token_id}
        return [[i for i in output.outputs[0].token_ids if i not in ends] for output in outputs]

    answers["vllm none"] = served()
    llm.collective_rpc("sere_switch", args=(POLICY,))
    llm.collective_rpc("sere_reset")
    answers["vllm sere"] = served()
    layers = llm.collective_rpc("sere_counters")[0]["layers"].values()
    steps = sum(layer["decode"]["steps"] for layer in layers)
    distinct["vllm"] = sum(layer["decode"]["experts_after"] for layer in layers) / steps
    right = {
        name: sum(
            tokenizer.decode(tokens) == example.answer for tokens, example in zip(lines, asked, strict=True)
        )
        for name, lines in answers.items()
    }
    same = sum(a == b for a, b in zip(answers["transformers none"], answers["vllm none"], strict=True))
    print(
        "RECORD " + json.dumps({"count": COUNT, "right": right, "same": same, "distinct": distinct}),
        flush=True,
    )


if __name__ == "__main__":
    main()
