"""Run small models under vLLM in a process of its own and print one JSON line for each.

``python -m tests.engines_vllm.driver FOLDER MODE FAMILY ...`` with MODE ``eager`` or ``compiled``. Every
family is served three times on the same prompts: without the plugin, under ``none`` and under ``sere``
(eager: by a switch of the running engine); under ``sere`` the routing that goes into and comes out of every
layer and step is recorded and compared with the oracle. MODE ``again`` serves what ``compiled`` left in
FOLDER, in the other order: under ``sere``, then without the plugin.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
POLICY = {"policy": "sere", "top_s": 1, "threshold": 0.3, "floor": 5}
BACKFILLED = "oea:top_s=1,floor=0"
SHORT = "sere:top_s=1,threshold=0.3,floor=5"


def build(folder: Path, family: Any) -> None:
    """Save a random checkpoint and a random artifact of it."""
    import torch
    from transformers import AutoModelForCausalLM

    from sere.engines.transformers import describe, find_layers
    from tests.engines_vllm.artifacts import random_artifact

    torch.manual_seed(0)
    dtype = getattr(torch, family.dtype)
    model = AutoModelForCausalLM.from_config(family.config()).to(dtype).eval()
    for name, value in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            value.copy_(torch.rand_like(value))
    model.save_pretrained(folder / "model")
    random_artifact(describe(model), find_layers(model)).save_pretrained(folder / "artifact")


def prompts() -> list[dict[str, list[int]]]:
    return [
        {"prompt_token_ids": [(7 * i + 3 * j) % 90 + 2 for j in range(3 + 5 * (i % 7))]} for i in range(12)
    ]


class Recorder:
    """Notes every call of a layer's re-routing, with the kinds that it saw."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __enter__(self) -> Recorder:
        from sere.engines.vllm.rerouting import Rerouting

        self.original = Rerouting.route
        recorder = self

        def route(layer: Any, ids: Any, weights: Any, hidden: Any, logits: Any) -> Any:
            out = recorder.original(layer, ids, weights, hidden, logits)
            kinds = layer.rows.of(ids.shape[0])
            recorder.calls.append(
                {
                    "layer": layer,
                    "ids": ids.tolist(),
                    "weights": weights.tolist(),
                    "kinds": None if kinds is None else kinds.tolist(),
                    "out": out[0].tolist(),
                    "kept": bool((out[1] == weights).all()),
                    "hidden": tuple(hidden.shape),
                    "scored": scored(layer, ids, weights, logits),
                    "fresh": out[0].data_ptr() != ids.data_ptr() and out[1].data_ptr() != weights.data_ptr(),
                }
            )
            return out

        Rerouting.route = route
        return self

    def __exit__(self, *_: object) -> None:
        from sere.engines.vllm.rerouting import Rerouting

        Rerouting.route = self.original


def scored(layer: Any, ids: Any, weights: Any, logits: Any) -> tuple[bool, bool]:
    """Whether slots weigh as their scores do, a factor a row apart; whether those left out rank below."""
    import torch

    scores = layer.scorer(logits, layer.num_experts)
    factors = weights.double() / scores.weight.double().gather(1, ids.long())
    mean = factors.mean(1, keepdim=True)
    least = scores.order.gather(1, ids.long()).amin(1, keepdim=True)
    outside = scores.order.scatter(1, ids.long(), float("-inf"))
    return torch.allclose(factors, mean.expand_as(factors), rtol=1e-2), bool((outside <= least).all())


def against_oracle(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Replay what was recorded through the oracle; sums over steps with decode rows."""
    from tests.routing.oracle import DECODE, PADDING, PREFILL, Case, sere

    wrong = before = after = steps = mixed = rerouted = 0
    kept = weighed = ordered = True  # warm-up steps are of padding only, and may hold NaN
    for call in calls:
        kinds = call["kinds"]
        if kinds is None or DECODE not in kinds:
            continue
        layer = call["layer"]
        case = Case(
            call["ids"], call["weights"], kinds, layer.num_experts, layer.statistics.similarity.numpy()
        )
        expected, active = sere(case, POLICY["top_s"], POLICY["threshold"], POLICY["floor"], "decode")
        served = [row for row, kind in enumerate(kinds) if kind != PADDING]
        steps += 1
        mixed += PREFILL in kinds
        kept &= call["kept"]
        weighed &= call["scored"][0] and call["hidden"][0] == len(kinds)
        ordered &= call["scored"][1]
        wrong += any(call["out"][row] != expected[row] for row in served)
        before += len({expert for row in served for expert in call["ids"][row]})
        after += len({expert for row in served for expert in call["out"][row]} | active)
        rerouted += sum(
            old != new for row in served for old, new in zip(call["ids"][row], call["out"][row], strict=True)
        )
    return {
        "steps": steps,
        "mixed": mixed,
        "wrong": wrong,
        "experts_before": before,
        "experts_after": after,
        "rerouted": rerouted,
        "fresh": all(call["fresh"] for call in calls),
        "kept_weights": kept,
        "scores_weigh": weighed,
        "scores_order": ordered,
    }


def latent_attention(model: Path) -> bool:
    """Whether the attention is MLA: on cores with AMX vLLM would take kernels that need large heads."""
    return "kv_lora_rank" in json.loads((model / "config.json").read_text())


def start(folder: Path, dtype: str, eager: bool, sere: dict[str, Any] | None, **options: Any) -> Any:
    """Start an engine in this process; without settings it is one without the plugin's key."""
    from vllm import LLM

    if latent_attention(folder / "model"):
        options.setdefault("attention_backend", "CPU_MLA")
    return LLM(
        str(folder / "model"),
        dtype=dtype,
        enforce_eager=eager,
        skip_tokenizer_init=True,
        max_model_len=96,
        max_num_seqs=12,
        max_num_batched_tokens=64,
        enable_chunked_prefill=True,
        gpu_memory_utilization=0.2,
        additional_config={"sere": sere} if sere else {},
        seed=0,
        disable_log_stats=True,
        **options,
    )


def ask(llm: Any, sere: bool) -> tuple[list[list[int]], Any]:
    """Tokens, and counters if re-routed."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, detokenize=False)
    if sere:
        llm.collective_rpc("sere_reset")
    outputs = llm.generate(prompts(), sampling, use_tqdm=False)
    counters = llm.collective_rpc("sere_counters")[0] if sere else None
    return [list(output.outputs[0].token_ids) for output in outputs], counters


def serve(folder: Path, dtype: str, eager: bool, sere: dict[str, Any] | None) -> tuple[Any, Any]:
    """Start an engine, ask it, and stop it."""
    llm = start(folder, dtype, eager, sere)
    answer = ask(llm, sere is not None)
    llm.llm_engine.engine_core.shutdown()
    return answer


def totals(counters: dict[str, Any], *phases: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for layer in counters["layers"].values():
        for phase in phases:
            for name, value in layer[phase].items():
                sums[name] = sums.get(name, 0) + value
    return sums


def run(folder: Path, mode: str, name: str) -> dict[str, Any]:
    from tests.engines_vllm.families import FAMILIES

    family, eager = FAMILIES[name], mode == "eager"
    folder.mkdir(parents=True, exist_ok=True)
    build(folder, family)
    plain, _ = serve(folder, family.dtype, eager, None)
    key = {"artifact": str(folder / "artifact")}
    llm = start(folder, family.dtype, eager, {"policy": "none", **key})
    none, none_counters = ask(llm, True)
    with Recorder() as recorder:
        if eager:
            llm.collective_rpc("sere_switch", args=(SHORT,))
            moved, counters = ask(llm, True)
        else:  # another policy from the start, for compiled code of its own
            llm.llm_engine.engine_core.shutdown()
            moved, counters = serve(folder, family.dtype, eager, {**POLICY, **key})
        oracle = against_oracle(recorder.calls)
    backfilled = None
    if eager:
        llm.collective_rpc("sere_switch", args=(BACKFILLED,))
        _, backfilled = ask(llm, True)
    return {
        "family": name,
        "plain tokens": plain,
        "sere tokens": moved,
        "none_equals_plain": none == plain,
        "sere_equals_plain": moved == plain,
        "distinct_tokens": len({token for row in plain for token in row}),
        "none": totals(none_counters, "decode", "mixed"),
        "sere": totals(counters, "decode", "mixed"),
        "prefill": totals(counters, "prefill"),
        "backfilled": totals(backfilled, "decode", "mixed") if backfilled else None,
        "layers": sorted(counters["layers"]),
        "oracle": oracle,
    }


def again(folder: Path, name: str) -> dict[str, Any]:
    from tests.engines_vllm.families import FAMILIES

    dtype, key = FAMILIES[name].dtype, {**POLICY, "artifact": str(folder / "artifact")}
    moved, counters = serve(folder, dtype, False, key)
    plain, _ = serve(folder, dtype, False, None)
    rerouted = totals(counters, "decode", "mixed")["rerouted"]
    return {"family": name, "plain tokens": plain, "sere tokens": moved, "rerouted": rerouted}


def main() -> None:
    folder, mode, names = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    for name in names:
        try:
            line = again(folder / name, name) if mode == "again" else run(folder / name, mode, name)
        except Exception as error:
            line = {
                "family": name,
                "error": f"{type(error).__name__}: {error}",
                "trace": traceback.format_exc(),
            }
        print("RECORD " + json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
