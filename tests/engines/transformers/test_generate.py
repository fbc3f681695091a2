"""``generate`` under a policy: searches, caches, kernels, padding, ends."""

from __future__ import annotations

import pytest
import torch

import sere
from sere.engines.transformers import find_layers
from sere.routing import DECODE, LayerStatistics, RoutingBatch, parse_policy
from tests.engines.transformers import small
from tests.engines.transformers.drive import random_artifact, random_ids, watching
from tests.engines.transformers.witness import best, chosen, witness

POLICY = "sere:top_s=1,floor=0"
LAYERS = small.LAYERS
GREEDY = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


@pytest.fixture
def model():
    return small.build("qwen3_moe")


def left_padded() -> dict[str, torch.Tensor]:
    """Four prompts of 3, 6, 6 and 6 tokens."""
    ids, mask = random_ids(4, 6), torch.ones(4, 6, dtype=torch.long)
    ids[0, :3], mask[0, :3] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def run(model, **options):
    """Output and counters of one re-routed ``generate`` on padded prompts."""
    with sere.rerouted(model, random_artifact(model), POLICY) as handle:
        output = model.generate(**left_padded(), **{**GREEDY, **options})
        return output, handle.counters()


def sums(table):
    fields = ("steps", "decode_rows", "prefill_rows")
    return tuple(sum(layer[field] for layer in table.values()) // LAYERS for field in fields)


def test_greedy_decoding_counts_every_row_once_and_padding_never(model):
    _, counters = run(model)
    assert sums(counters.prefill) == (1, 0, 21)
    assert sums(counters.decode) == (5, 20, 0)
    assert sums(counters.mixed) == (0, 0, 0)
    assert counters.distinct_after < counters.distinct_before


def test_the_tokens_change_under_a_strong_policy_and_not_under_none(model):
    plain = model.generate(**left_padded(), **GREEDY)
    with sere.rerouted(model, None, "none"):
        assert torch.equal(model.generate(**left_padded(), **GREEDY), plain)
    assert not torch.equal(run(model)[0], plain)
    assert torch.equal(model.generate(**left_padded(), **GREEDY), plain)


def test_sampling_is_rerouted(model):
    _, counters = run(model, do_sample=True)
    assert sums(counters.decode) == (5, 20, 0)
    assert sum(layer["rerouted"] for layer in counters.decode.values()) > 0


def test_beam_search_decodes_a_row_for_every_beam(model):
    _, counters = run(model, num_beams=3)
    assert sums(counters.prefill)[2] == 63
    assert sums(counters.decode) == (5, 60, 0)
    assert sum(layer["rerouted"] for layer in counters.decode.values()) > 0


def test_a_static_cache_routes_as_a_growing_one(model):
    assert_same(run(model), run(model, cache_implementation="static"))


def test_a_prompt_in_chunks_routes_as_one_in_a_piece(model):
    tokens, counters = run(model, prefill_chunk_size=4)
    plain, whole = run(model)
    assert torch.equal(tokens, plain)
    assert counters.decode == whole.decode
    assert sums(counters.prefill) == (2, 0, 21)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("experts", ["eager", "grouped_mm"])
def test_kernels_do_not_matter(model, attention, experts):
    reference = run(model)
    model.set_attn_implementation(attention)
    model.set_experts_implementation(experts)
    assert_same(run(model), reference)


def assert_same(one, other):
    assert torch.equal(one[0], other[0])
    assert one[1] == other[1]


def test_without_a_cache_every_row_is_prefill_and_kept(model):
    _, counters = run(model, use_cache=False)
    assert counters.total["rerouted"] == 0
    assert sums(counters.decode) == (0, 0, 0)


def test_drafts_that_are_verified_count_as_decode(model):
    prompt = torch.tensor([[7, 8, 9, 10] * 5])
    with sere.rerouted(model, random_artifact(model), POLICY) as handle:
        model.generate(prompt, prompt_lookup_num_tokens=3, **GREEDY)
        counters = handle.counters()
    steps, rows, _ = sums(counters.decode)
    assert sums(counters.prefill)[2] == 20 + 3  # the first draft runs with the prompt
    assert rows > steps > 0  # some step verified more than one token


def test_prompts_given_as_embeddings_are_rerouted(model):
    embeddings = model.get_input_embeddings()(random_ids(3, 4)).detach()
    with sere.rerouted(model, random_artifact(model), POLICY) as handle:
        model.generate(inputs_embeds=embeddings, **GREEDY)
        counters = handle.counters()
    assert sums(counters.prefill)[2] == 12
    assert sums(counters.decode) == (5, 15, 0)


@pytest.mark.parametrize("pad", [0, "end"])
def test_finished_sequences_are_padding(model, pad):
    prompts = random_ids(4, 6)
    plain = model.generate(prompts, **GREEDY)[:, 6:]
    end = int(plain[0, 2])
    options = {"eos_token_id": end, "pad_token_id": end if pad == "end" else pad}
    alive = sum(int(end not in row[: step + 1]) for step in range(5) for row in plain.tolist())
    with sere.rerouted(model, None, "none") as handle:
        model.generate(prompts, **{**GREEDY, **options})
        counters = handle.counters()
    assert alive < 20
    assert sums(counters.decode)[1] == alive


def test_what_a_finished_sequence_is_fed_in_a_loop_of_ones_own_is_a_token_like_any_other(model):
    ids = random_ids(3, 4)
    ids[1, -1] = model.generation_config.eos_token_id or 1
    with sere.rerouted(model, None, "none") as handle, torch.no_grad():
        output = model(input_ids=ids[:, :3], use_cache=True)
        model(input_ids=ids[:, 3:], cache=output.cache)
        assert sums(handle.counters().decode) == (1, 3, 0)


def test_decode_rows_with_padding_among_them_follow_the_policy_on_the_real_ones_alone(model):
    ids, mask = random_ids(6, 4), torch.ones(6, 5, dtype=torch.long)
    mask[1, 4] = mask[4, 4] = 0
    real = mask[:, 4] == 1
    artifact = random_artifact(model)
    with torch.no_grad(), watching(model) as routed, sere.rerouted(model, artifact, POLICY) as handle:
        output = model(input_ids=ids, use_cache=True)
        routed.calls.clear()
        with watching(model) as served:
            model(input_ids=random_ids(6, 1, seed=8), attention_mask=mask, cache=output.cache)
        counters = handle.counters()
    for (name, ids_in, weights_in), (_, ids_out, _) in zip(routed.calls, served.calls, strict=True):
        batch = RoutingBatch(ids_in[real], weights_in[real], 8, torch.full((4,), DECODE))
        expected = parse_policy(POLICY).route(batch, LayerStatistics(artifact.similarity(name)))
        assert torch.equal(ids_out[real], expected.ids)
        # Padding rows run too, so they are sent where the others are.
        assert set(ids_out.flatten().tolist()) == set(expected.active.nonzero().flatten().tolist())
        assert counters.decode[name]["decode_rows"] == 4
        assert counters.decode[name]["experts_after"] == int(expected.active.sum())


def test_padding_on_either_side_and_of_any_content_gives_real_tokens_the_same_routing(model):
    tokens, lengths, width = random_ids(3, 6), (3, 5, 6), 6
    served = []
    for side in ("left", "right"):
        for garbage in (0, 50):
            ids, mask = torch.full((3, width), garbage), torch.zeros(3, width, dtype=torch.long)
            for row, length in enumerate(lengths):
                place = slice(width - length, width) if side == "left" else slice(0, length)
                ids[row, place], mask[row, place] = tokens[row, :length], 1
            served.append(routing(model, ids, mask))
    for each in find_layers(model):
        assert served[0][each.name].shape == (sum(lengths), each.top_k)
        assert all(torch.equal(served[0][each.name], other[each.name]) for other in served)


def routing(model, ids, mask):
    """Experts of the real tokens of a forward, by layer, in the order of the tokens."""
    positions, policy = (mask.cumsum(1) - 1).clamp(min=0), "sere:top_s=1,floor=0,phase=all"
    with torch.no_grad(), sere.rerouted(model, random_artifact(model), policy), watching(model) as seen:
        model(input_ids=ids, attention_mask=mask, position_ids=positions)
    return {name: experts[mask.flatten() == 1] for name, experts, _ in seen.calls}


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache_implementation": "static"}])
def test_scores_reach_the_policy_in_generate(model, options):
    policy, batches = witness("scores")
    plain = model.generate(**left_padded(), **{**GREEDY, **options})
    with sere.rerouted(model, None, policy):
        assert torch.equal(model.generate(**left_padded(), **{**GREEDY, **options}), plain)
    assert len(batches) == 6 * LAYERS
    assert all(best(batch.scores, batch) == chosen(batch) for batch in batches)


def test_backfill_changes_decoding_and_leaves_no_trace(model):
    plain = model.generate(**left_padded(), **GREEDY)
    with sere.rerouted(model, None, "oea:top_s=1,floor=0") as handle:
        assert not torch.equal(model.generate(**left_padded(), **GREEDY), plain)
        counters = handle.counters()
    assert counters.distinct_after < counters.distinct_before
    assert sums(counters.decode) == (5, 20, 0)
    assert torch.equal(model.generate(**left_padded(), **GREEDY), plain)
