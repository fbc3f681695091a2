"""What a comparison reports, recounted with hooks and sums that share no code with it."""

import math
from contextlib import nullcontext

import pytest
import torch

import sere
from sere.engines.transformers import find_layers
from sere.evaluation import CompareConfig, compare
from sere.evaluation.tokens import heldout_sequences
from tests.evaluation.test_compare import TEXTS

BATCH, LENGTH, PROMPT = 3, 18, 4
POLICIES = ["sere:top_s=1", "sere:top_s=2,threshold=0.6", "sere:top_s=1,merge=true", "top_k:k=2"]
CONFIG = {"batch_sizes": (BATCH,), "sequences": 6, "sequence_length": LENGTH, "prompt_tokens": PROMPT}


def recount(model, artifact, policy, ids):
    """Logits [N, T, V] in float64, and distinct experts of every layer and step that carry weight."""
    distinct, rows = [], []

    def see(_module, args):
        if args[0].shape[0] == BATCH:  # a decoding step; the prompt has more rows
            distinct.append(len(set(args[1][args[2] != 0].tolist())))

    for batch in ids.split(BATCH):
        context = nullcontext() if policy is None else sere.rerouted(model, artifact, policy)
        with torch.no_grad(), context:
            hooks = [layer.module.register_forward_pre_hook(see) for layer in find_layers(model)]
            step = model(input_ids=batch[:, :PROMPT], use_cache=True)
            steps = []
            for t in range(PROMPT, LENGTH - 1):
                step = model(input_ids=batch[:, t : t + 1], cache=step.cache, use_cache=True)
                steps.append(step.logits[:, -1].double())
            for hook in hooks:
                hook.remove()
        rows.append(torch.stack(steps, 1))
    return torch.cat(rows), distinct


@pytest.mark.parametrize("mode", ["real", "proxy"])
def test_every_figure_equals_an_independent_computation(model, tokenizer, artifact, mode):
    config = CompareConfig(mode=mode, speed_rounds=0, **CONFIG)
    record = compare(model, tokenizer, artifact, POLICIES, config, texts=TEXTS)
    ids = heldout_sequences(tokenizer, TEXTS, 6, LENGTH, 0)
    targets = ids[:, PROMPT + 1 :, None]
    reference, _ = recount(model, artifact, None, ids)
    p = reference.log_softmax(-1)
    for policy in (None, "none", *POLICIES):
        logits, distinct = recount(model, artifact, policy, ids)
        q = logits.log_softmax(-1)
        result = record.result(policy or "unmodified", BATCH)
        near = result.fidelity
        assert len(distinct) == 2 * 2 * (LENGTH - 1 - PROMPT)
        assert result.experts.after == pytest.approx(sum(distinct) / len(distinct), rel=1e-12)
        assert near.kl == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), rel=1e-4, abs=1e-9)
        assert near.top1_agreement == pytest.approx(float((p.argmax(-1) == q.argmax(-1)).double().mean()))
        assert near.perplexity == pytest.approx(math.exp(-float(q.gather(-1, targets).mean())), rel=1e-5)


def test_the_seed_makes_a_run_the_same_again(model, tokenizer, artifact):
    runs = [
        compare(
            model, tokenizer, artifact, POLICIES,
            CompareConfig(seed=seed, speed_rounds=0, tasks="bundled", examples_per_task=1, **CONFIG),
            texts=TEXTS,
        ).results
        for seed in (3, 3, 4)
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
