"""Decode held-out tasks with the bundled model under Transformers and under vLLM, 16 sequences at a time.

In waves: vLLM would let a waiting prompt in as soon as a sequence ends, and its experts, which are resident,
would spare the decode rows of that step most of the re-routing. In waves both engines decode the same rows
together, so that their answers can be compared one by one.

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
    waves = [slice(start, start + LIVE) for start in range(0, COUNT, LIVE)]

    def decoded() -> list[list[int]]:
        return [
            tokens
            for wave in waves
            for tokens in decode_greedily(model, tokenizer, prompts[wave], budgets[wave], LIVE).tokens
        ]

    answers["transformers none"] = decoded()
    with sere.rerouted(model, artifact, POLICY) as handle:
        answers["transformers sere"] = decoded()
        distinct = {"transformers": handle.counters().distinct_after}
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
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = [
            output for wave in waves for output in llm.generate(asked[wave], sampling[wave], use_tqdm=False)
        ]
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
    same = {
        policy: sum(
            a == b for a, b in zip(answers[f"transformers {policy}"], answers[f"vllm {policy}"], strict=True)
        )
        for policy in ("none", "sere")
    }
    print(
        "RECORD " + json.dumps({"count": COUNT, "right": right, "same": same, "distinct": distinct}),
        flush=True,
    )


if __name__ == "__main__":
    main()
