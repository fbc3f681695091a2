"""Train the bundled mixture-of-experts model on one CPU thread.

    python tools/demo_model/corpus.py CORPUS
    python tools/demo_model/train.py CORPUS OUT --minutes 90

The architecture is Qwen3-MoE, small: 4 layers, 64 experts of width 32, 8 a token. The learning
rate warms up, stays, and falls to zero over the last 30% of the time; every ``--save-every``
minutes the newest weights are written to ``OUT/checkpoint`` so that other work can start on them.
The run ends by wall clock, so the number of steps depends on the machine; the seed fixes the data
and the initial weights.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
from batches import Batches
from tokenizer import train_tokenizer
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

PEAK_RATE = 4e-3
WARM_UP_STEPS = 200
DECAY_SHARE = 0.3
ROWS = 32


def build(tokenizer: PreTrainedTokenizerFast) -> Qwen3MoeForCausalLM:
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=64,
        num_experts_per_tok=8,
        moe_intermediate_size=32,
        intermediate_size=128,
        norm_topk_prob=True,
        router_aux_loss_coef=0.01,
        output_router_logits=True,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    # On one thread, sequences of 128: grouped products and written-out attention train fastest.
    return Qwen3MoeForCausalLM._from_config(
        config, experts_implementation="grouped_mm", attn_implementation="eager"
    )


def save(model: Qwen3MoeForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    weights = {name: value.to(torch.bfloat16) for name, value in model.state_dict().items()}
    model.config.output_router_logits = False
    model.config.dtype = torch.bfloat16
    model.save_pretrained(folder, state_dict=weights)
    model.config.output_router_logits = True
    tokenizer.save_pretrained(folder)


def rate(step: int, share: float) -> float:
    """Learning-rate factor: linear warm-up, constant, then a 1-sqrt fall to zero."""
    fall = max(0.0, (share - (1 - DECAY_SHARE)) / DECAY_SHARE)
    return min(1.0, step / WARM_UP_STEPS) * (1 - math.sqrt(fall))


def optimizer(model: Qwen3MoeForCausalLM) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), eps=1e-9, fused=True)


def train(corpus: Path, out: Path, minutes: float, save_every: float, seed: int) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    tokenizer = train_tokenizer(corpus / "train.txt")
    texts = (corpus / "train.txt").read_text(encoding="utf-8").split("\n\n")
    batches = Batches(tokenizer, texts, seed).draw(ROWS)
    model = build(tokenizer).train()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    adam = optimizer(model)
    curve: list[dict[str, float]] = []
    started = saved = time.monotonic()
    step, tokens, smooth = 0, 0, 0.0
    while (share := (time.monotonic() - started) / (60 * minutes)) < 1:
        step += 1
        for group in adam.param_groups:
            group["lr"] = PEAK_RATE * rate(step, share)
        ids, labels = next(batches)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(input_ids=ids, labels=labels, use_cache=False)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        tokens += ids.numel()
        loss = float(output.loss.detach())
        smooth = loss if step == 1 else 0.98 * smooth + 0.02 * loss
        if step % 100 == 0 or step == 1:
            seconds = time.monotonic() - started
            curve.append(
                {"step": step, "tokens": tokens, "seconds": round(seconds), "loss": round(smooth, 4)}
            )
            print(json.dumps(curve[-1]), f"{tokens / seconds:.0f} tokens/s", flush=True)
        if time.monotonic() - saved > 60 * save_every:
            save(model, tokenizer, out / "checkpoint")
            saved = time.monotonic()
    save(model, tokenizer, out / "final")
    record = {"seed": seed, "minutes": minutes, "steps": step, "tokens": tokens, "curve": curve}
    (out / "training.json").write_text(json.dumps(record, indent=1), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--save-every", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    train(args.corpus, args.out, args.minutes, args.save_every, args.seed)


if __name__ == "__main__":
    main()
