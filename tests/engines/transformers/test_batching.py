"""Continuous batching: steps that mix prompts and decoding."""

from __future__ import annotations

import pytest
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

import sere
from sere.routing import DECODE, PREFILL, LayerStatistics, RoutingBatch, parse_policy
from tests.engines.transformers import small
from tests.engines.transformers.drive import random_artifact, random_ids, watching
from tests.engines.transformers.witness import best, chosen, witness

POLICY = "sere:top_s=1,floor=0"
LENGTHS = (9, 4, 2, 7, 5, 3)


@pytest.fixture
def model():
    return small.build("qwen3_moe")


def serve(model):
    prompts = [row[:length].tolist() for row, length in zip(random_ids(6, 9), LENGTHS, strict=True)]
    config = GenerationConfig(max_new_tokens=5, do_sample=False, eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=8)
    outputs = model.generate_batch(
        prompts, generation_config=config, continuous_batching_config=batching, progress_bar=False
    )
    return [output.generated_tokens for output in outputs.values()]


def lengths_of_steps(model, steps):
    """Record the lengths of queries and keys of every packed step."""

    def record(module, args, kwargs):
        queries, keys = kwargs["cu_seq_lens_q"], next(iter(kwargs["cu_seq_lens_k"].values()))
        steps.append((queries.diff().tolist(), keys.diff().tolist()))

    return model.register_forward_pre_hook(record, with_kwargs=True)


def test_none_leaves_the_tokens_alone(model):
    plain = serve(model)
    with sere.rerouted(model, None, "none") as handle:
        assert serve(model) == plain
        assert handle.counters().total["rerouted"] == 0


def test_mixed_steps_reroute_the_decode_rows_and_keep_the_prompts(model):
    artifact, steps = random_artifact(model), []
    watcher = lengths_of_steps(model, steps)
    with watching(model) as routed, sere.rerouted(model, artifact, POLICY) as handle:
        with watching(model) as served:
            serve(model)
        counters = handle.counters()
    watcher.remove()
    policy, mixed = parse_policy(POLICY), 0
    calls = zip(routed.calls, served.calls, strict=True)
    for call, ((name, ids, weights), (_, new_ids, new_weights)) in enumerate(calls):
        queries, keys = steps[call // small.LAYERS]
        kinds = torch.tensor(
            [
                DECODE if q == 1 and k > 1 else PREFILL
                for q, k in zip(queries, keys, strict=True)
                for _ in range(q)
            ]
        )
        batch = RoutingBatch(ids, weights, 8, kinds)
        expected = policy.route(batch, LayerStatistics(artifact.similarity(name)))
        assert torch.equal(new_ids, expected.ids)
        assert torch.equal(new_weights, expected.weights)
        assert torch.equal(new_ids[kinds == PREFILL], ids[kinds == PREFILL])
        mixed += len(set(kinds.tolist())) == 2
    assert mixed > 0
    assert sum(layer["steps"] for layer in counters.mixed.values()) == mixed
    assert sum(layer["rerouted"] for layer in counters.mixed.values()) > 0


def test_every_token_of_every_sequence_is_counted_once(model):
    with sere.rerouted(model, None, "none") as handle:
        serve(model)
        total = handle.counters().total
    rows = sum(LENGTHS) + len(LENGTHS) * 4  # the last of five new tokens is never fed
    assert total["decode_rows"] + total["prefill_rows"] == rows * small.LAYERS


def test_scores_belong_to_the_rows_of_a_mixed_step(model):
    policy, batches = witness("scores", "hidden")
    plain = serve(model)
    with sere.rerouted(model, None, policy):
        assert serve(model) == plain
    assert sum(len(set(batch.kinds.tolist())) == 2 for batch in batches) > 0
    for batch in batches:
        assert best(batch.scores, batch) == chosen(batch)
        assert batch.hidden.shape == (batch.ids.shape[0], 32)


def test_backfill_in_mixed_steps_keeps_the_prompts_and_loads_less(model):
    with sere.rerouted(model, None, "oea:top_s=1,floor=0") as handle:
        serve(model)
        mixed, decode = (handle.counters().mixed.values(), handle.counters().decode.values())
    for steps in (mixed, decode):
        assert sum(layer["rerouted"] for layer in steps) > 0
        assert sum(layer["experts_after"] for layer in steps) < sum(
            layer["experts_before"] for layer in steps
        )
