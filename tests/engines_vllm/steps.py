"""Steps of unusual shape on a real engine: preemption, cached prefixes, drafts; and engines side by side.

``python -m tests.engines_vllm.steps FOLDER`` where FOLDER holds ``model`` and ``artifact``; one JSON line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.engines_vllm.driver import SHORT, Recorder, against_oracle, prompts, totals

DRAFTS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2, "prompt_lookup_min": 1}
LONG = [{"prompt_token_ids": [(5 * j + i) % 90 + 2 for j in range(64)]} for i in range(3)]


def start(folder: Path, sere: dict[str, Any] | None, **options: Any) -> Any:
    from vllm import LLM

    return LLM(
        str(folder / "model"),
        dtype="float32",
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=96,
        max_num_seqs=12,
        max_num_batched_tokens=64,
        block_size=32,
        gpu_memory_utilization=0.2,
        additional_config={} if sere is None else {"sere": sere},
        seed=0,
        **options,
    )


def generate(llm: Any, asked: list[dict[str, list[int]]], tokens: int) -> list[list[int]]:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    return [list(out.outputs[0].token_ids) for out in llm.generate(asked, sampling, use_tqdm=False)]


def rerouted(llm: Any, asked: list[dict[str, list[int]]], tokens: int, policy: str = SHORT) -> dict[str, Any]:
    """Serve under ``sere``; what was counted, and what the oracle makes of the recorded routing."""
    llm.collective_rpc("sere_switch", args=(policy,))
    llm.collective_rpc("sere_reset")
    with Recorder() as recorder:
        answers = generate(llm, asked, tokens)
    counters = llm.collective_rpc("sere_counters")[0]
    return {
        "tokens": answers,
        "counted": totals(counters, "decode", "mixed"),
        "prefill": totals(counters, "prefill"),
        "oracle": against_oracle(recorder.calls),
        "widest": max(call["kinds"].count(0) for call in recorder.calls if call["kinds"]),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    key = {"policy": "none", "artifact": str(folder / "artifact")}
    few = {"num_gpu_blocks_override": 10}  # the requests need 24 blocks of 32 tokens
    plain, small = start(folder, None, **few), start(folder, key, **few)
    line: dict[str, Any] = {"plain": generate(plain, prompts(), 40), "none": generate(small, prompts(), 40)}
    line["preempted"] = rerouted(small, prompts(), 40)
    # Of 64 prompt tokens one block of 32 is found: vLLM computes the last block again.
    line["uncached"], line["cached"] = rerouted(small, LONG, 10), rerouted(small, LONG, 10)
    for name, policy in (("apart", SHORT), ("merged", f"{SHORT},merge=true")):
        small.reset_prefix_cache()  # answers depend on the batches, and those on what is found in the cache
        line[name] = rerouted(small, prompts(), 10, policy)["tokens"]
    # Three engines are alive now; vLLM allows none after one with drafts in this process.
    drafting = start(folder, key, speculative_config=DRAFTS)
    line["short"] = generate(plain, prompts(), 10)
    line["none drafts"] = generate(drafting, prompts(), 10)
    line["drafts"] = rerouted(drafting, prompts(), 10)
    small.collective_rpc("sere_switch", args=("none",))
    line["none again"] = generate(small, prompts(), 10)
    small.collective_rpc("reload_weights")
    line["reloaded"] = rerouted(small, prompts(), 10)
    print("RECORD " + json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
