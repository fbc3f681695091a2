"""Decode speed under vLLM at a real layer's size: unmodified, ``none`` and ``sere``, interleaved in one run.

The model has the layer shape of Qwen3-30B-A3B (hidden 2048, 128 experts of width 768, top-8, 32 heads) with
random weights made on the fly. Its vocabulary is scaled to its share of layers, so that the head weighs as
much beside a layer as in the real model. Embeddings share a direction, chosen so that 16 rows name about as
many experts as measured on the real model; ``--spread 0`` gives uniform routing instead.

Two engines live in one process, one of them without the plugin; the other one's policy is switched while it
runs. With ``--device cuda``, where captured graphs hold their policy, there is one engine for each variant.
Every round serves every variant on the same sampled requests; a variant's figure is the median over rounds of
its ratio to the unmodified engine in that round.

    python benchmarks/vllm_decode.py --dtype float32 --batches 16 --json runs/vllm_float32.json
    python benchmarks/vllm_decode.py --device cuda --dtype bfloat16 --batches 1 4 16 64 --steps 128

Pin it to cores that are otherwise idle, and give vLLM both: VLLM_CPU_OMP_THREADS_BIND=0-1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

UNMODIFIED = "unmodified"
VARIANTS = (
    UNMODIFIED,
    "none",
    "sere:top_s=2",
    "sere:top_s=1",
    "sere:top_s=2,merge=true",
    "sere:top_s=1,merge=true",
    "top_k:k=4",
)
SHAPE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "attention_bias": False,
}
REAL_LAYERS, REAL_VOCABULARY = 48, 151936


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_model(root, options.layers)
        policies = options.variants if options.device == "cuda" else (UNMODIFIED, "none")
        engines = {policy: start(root, options, policy) for policy in policies}
        results = []
        for batch in [*options.batches, *([None] if options.mixed else [])]:
            results.append(measure(engines, options, batch) if batch else measure_mixed(engines, options))
            show(results[-1])
            save(options, results)


def save(options: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """Write the record, whole, under its name."""
    if options.json is None:
        return
    from sere.provenance import Provenance

    run = Provenance.now(
        device=options.device, dtype=options.dtype, seeds={"similarities": 0, "weights": 1, "first round": 1}
    )
    record = {
        "benchmark": "vllm_decode",
        "provenance": run.model_dump(),
        "options": vars(options),
        "machine": machine(),
        "results": results,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    temporary = options.json.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=2, default=str) + "\n")
    temporary.replace(options.json)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="what vLLM runs on here")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batches", type=int, nargs="+", default=[16])
    parser.add_argument("--mixed", action="store_true", help="also a load of prompts and decoding together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16, help="decode steps a variant and round")
    parser.add_argument(
        "--spread", type=float, default=0.7, help="weight of the embeddings' shared direction"
    )
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.layers < 2:
        parser.error("--layers must be at least 2: the vocabulary is scaled with it")
    return options


def write_model(root: Path, layers: int) -> None:
    """Write a configuration without weights, and an artifact of random similarities."""
    import torch

    from sere.artifact import Artifact, CalibrationRecord, LayerRecord, ModelRecord
    from sere.version import __version__

    vocabulary = REAL_VOCABULARY * layers // REAL_LAYERS
    config = {**SHAPE, "num_hidden_layers": layers, "vocab_size": vocabulary}
    (root / "config.json").write_text(json.dumps(config))
    records = [
        LayerRecord(name=f"model.layers.{index}.mlp.experts", index=index, num_experts=128, top_k=8)
        for index in range(layers)
    ]
    generator = torch.Generator().manual_seed(0)
    drawn = {record.name: torch.rand(128, 128, generator=generator) for record in records}
    Artifact.build(
        ModelRecord.describe(id="random", architecture="qwen3_moe", hidden_size=2048, layers=records),
        tuple(records),
        {name: {"frobenius": ((value + value.T) / 2).fill_diagonal_(1)} for name, value in drawn.items()},
        ("frobenius",),
        CalibrationRecord(source="reference", data="random numbers", sere_version=__version__),
    ).save_pretrained(root / "artifact")


def start(root: Path, options: argparse.Namespace, policy: str) -> Any:
    """Start an engine with random weights."""
    from vllm import LLM

    settings = {"artifact": str(root / "artifact"), "policy": policy}
    with random_weights(options.spread):
        llm = LLM(
            str(root),
            dtype=options.dtype,
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=options.eager,
            max_model_len=512,
            max_num_seqs=max(*options.batches, 16),
            max_num_batched_tokens=512,
            enable_prefix_caching=False,
            gpu_memory_utilization=0.2,
            kv_cache_memory_bytes=2**30 if options.device == "cuda" else None,
            seed=0,
            additional_config={} if policy == UNMODIFIED else {"sere": settings},
        )
    return llm


@contextmanager
def random_weights(spread: float) -> Iterator[None]:
    """Let vLLM's loader of dummy weights draw ones that give activations of ordinary size."""
    import torch
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    def load_weights(_: Any, model: torch.nn.Module, __: Any) -> None:
        generator = torch.Generator(next(model.parameters()).device).manual_seed(1)
        for name, value in model.named_parameters():
            if "norm" in name:
                value.data.fill_(1)
                continue
            # Uniform with the variance of 1 / inputs; embeddings with variance 1.
            inputs = 1 if "embed_tokens" in name else value.shape[-1]
            bound = (3 / inputs) ** 0.5
            value.data.uniform_(-bound, bound, generator=generator)
            if "embed_tokens" in name:
                common = torch.randn(value.shape[1], generator=generator, device=value.device)
                value.data += (spread * common).to(value.dtype)

    original = DummyModelLoader.load_weights
    DummyModelLoader.load_weights = load_weights
    try:
        yield
    finally:
        DummyModelLoader.load_weights = original


def requests(
    batch: int, tokens: int, seed: int, prompt: int = 8, seeded: bool = True
) -> list[tuple[dict[str, Any], Any]]:
    """Draw requests with random prompts, sampled at temperature 1, with seeds of their own if ``seeded``.

    vLLM 0.32 on the CPU cannot serve a seeded request whose prompt comes in chunks.
    """
    import random

    from vllm import SamplingParams

    draw = random.Random(seed)
    return [
        (
            {"prompt_token_ids": [draw.randrange(4096) for _ in range(prompt)]},
            SamplingParams(
                temperature=1.0,
                seed=1000 * seed + row if seeded else None,
                max_tokens=tokens,
                ignore_eos=True,
                detokenize=False,
            ),
        )
        for row in range(batch)
    ]


def decode(llm: Any, batch: int, steps: int, seed: int) -> float:
    """Median seconds of a decode step of ``batch`` rows."""
    engine = llm.llm_engine
    for number, (prompt, sampling) in enumerate(requests(batch, steps + 3, seed)):
        engine.add_request(f"{seed}-{number}", prompt, sampling)
    times = []
    while engine.has_unfinished_requests():
        started = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - started)
    return statistics.median(times[2 : 2 + steps])


def measure(engines: dict[str, Any], options: argparse.Namespace, batch: int) -> dict[str, Any]:
    """All variants at one batch size."""
    seconds: dict[str, list[float]] = {name: [] for name in options.variants}
    distinct: dict[str, tuple[float, float]] = {}
    for turn in range(-1, options.rounds):  # one round to warm up
        for name in options.variants:
            llm = chosen(engines, name, options.device == "cpu")
            took = decode(llm, batch, options.steps, seed=turn + 2)
            if turn >= 0:
                seconds[name].append(took)
            if name != UNMODIFIED:
                distinct[name] = experts(llm)
    rates = {name: [batch / value for value in values] for name, values in seconds.items()}
    return {"load": f"batch {batch}", "rounds": options.rounds, "variants": summary(rates, distinct)}


def measure_mixed(engines: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Prompts arrive while others decode: 32 requests of 16 to 256 prompt tokens, 16 at a time."""
    rates: dict[str, list[float]] = {name: [] for name in options.variants}
    distinct: dict[str, tuple[float, float]] = {}
    rounds = (options.rounds + 1) // 2  # long ones
    for turn in range(-1, rounds):
        load = [
            item for size in range(16, 257, 16) for item in requests(2, 24, 50 + turn + size, size, False)
        ]
        for name in options.variants:
            llm = chosen(engines, name, options.device == "cpu")
            started = time.perf_counter()
            llm.generate([item[0] for item in load], [item[1] for item in load], use_tqdm=False)
            if turn >= 0:
                rates[name].append(len(load) * 24 / (time.perf_counter() - started))
            if name != UNMODIFIED:
                distinct[name] = experts(llm)
    return {"load": "mixed prompts and decoding", "rounds": rounds, "variants": summary(rates, distinct)}


def chosen(engines: dict[str, Any], name: str, switched: bool) -> Any:
    """Return the engine that serves this variant, switched to it unless each has its own."""
    if name == UNMODIFIED:
        return engines[UNMODIFIED]
    llm = engines["none" if switched else name]
    if switched:
        llm.collective_rpc("sere_switch", args=(name,))
    llm.collective_rpc("sere_reset")
    return llm


def experts(llm: Any) -> tuple[float, float]:
    """Distinct experts before and after, mean per layer and step with decode rows."""
    layers = llm.collective_rpc("sere_counters")[0]["layers"].values()
    phases = [layer[phase] for layer in layers for phase in ("decode", "mixed")]
    steps = sum(phase["steps"] for phase in phases)
    return tuple(
        sum(phase[field] for phase in phases) / steps for field in ("experts_before", "experts_after")
    )


def summary(rates: dict[str, list[float]], distinct: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Medians, and the spread of the ratios to the unmodified engine, round by round."""
    base = rates[UNMODIFIED]
    lines = {}
    for name, values in rates.items():
        ratios = [value / reference for value, reference in zip(values, base, strict=True)]
        lines[name] = {
            "tokens_per_second": round(statistics.median(values), 2),
            "ratio": round(statistics.median(ratios), 3),
            "ratio_low": round(min(ratios), 3),
            "ratio_high": round(max(ratios), 3),
            "experts_before": round(distinct[name][0], 1) if name in distinct else None,
            "experts_after": round(distinct[name][1], 1) if name in distinct else None,
        }
    return lines


def machine() -> dict[str, Any]:
    """Describe what the figures were measured on."""
    import torch
    import vllm

    return {
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "vllm": vllm.__version__,
        "bind": os.environ.get("VLLM_CPU_OMP_THREADS_BIND"),
    }


def show(result: dict[str, Any]) -> None:
    """Print one table."""
    print(f"\n{result['load']}: variant, tokens/s, ratio (spread), distinct experts before -> after")
    for name, line in result["variants"].items():
        change = f"{line['experts_before']} -> {line['experts_after']}" if line["experts_after"] else ""
        spread = f"{line['ratio']:.2f} ({line['ratio_low']:.2f} to {line['ratio_high']:.2f})"
        print(f"  {name:26} {line['tokens_per_second']:8.1f}  {spread:22} {change}", flush=True)


if __name__ == "__main__":
    main()
