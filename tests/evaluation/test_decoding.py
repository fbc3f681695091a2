"""Live batches: what is decoded does not depend on padding or on the neighbours' coming and going."""

import torch

from sere.evaluation.decoding import LiveBatch, select_rows


def ones(ids):
    return torch.ones_like(ids)


def decode(live, ids):
    return torch.stack([live.step(ids[:, t]) for t in range(ids.shape[1])], dim=1)


@torch.no_grad()
def test_stepwise_logits_equal_those_of_one_forward(model, ids):
    live = LiveBatch(model)
    first = live.prefill(ids[:, :4], ones(ids[:, :4]))
    rest = decode(live, ids[:, 4:])
    whole = model(input_ids=ids).logits
    torch.testing.assert_close(first, whole[:, 3], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rest, whole[:, 4:], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_left_padding_changes_no_logits(model, ids):
    plain, padded = LiveBatch(model), LiveBatch(model)
    plain.prefill(ids[:, :4], ones(ids[:, :4]))
    zeros = torch.zeros(6, 3, dtype=torch.long)
    padded.prefill(torch.cat([zeros, ids[:, :4]], 1), torch.cat([zeros, ones(ids[:, :4])], 1))
    torch.testing.assert_close(decode(plain, ids[:, 4:9]), decode(padded, ids[:, 4:9]), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_sequence_that_joins_or_leaves_changes_no_other(model, ids):
    alone = LiveBatch(model)
    alone.prefill(ids[:, :4], ones(ids[:, :4]))
    expected = decode(alone, ids[:, 4:12])

    live = LiveBatch(model)
    live.prefill(ids[:3, :4], ones(ids[:3, :4]))
    early = decode(live, ids[:3, 4:8])
    torch.testing.assert_close(early, expected[:3, :4], rtol=1e-4, atol=1e-4)
    live.keep(torch.tensor([0, 2]))
    joining = LiveBatch(model)
    joining.prefill(ids[3:5, :4], ones(ids[3:5, :4]))
    live.join(joining)
    assert live.mask.sum(1).tolist() == [8, 8, 4, 4]
    following = torch.stack([ids[0, 8:12], ids[2, 8:12], ids[3, 4:8], ids[4, 4:8]])
    late = decode(live, following)
    torch.testing.assert_close(late[:2], expected[[0, 2], 4:8], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(late[2:], expected[3:5, :4], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_columns_that_nobody_needs_are_dropped_when_sequences_join(model, ids):
    live = LiveBatch(model)
    live.prefill(ids[:2, :15], ones(ids[:2, :15]))
    live.keep(torch.tensor([], dtype=torch.long))
    joining = LiveBatch(model)
    joining.prefill(ids[2:4, :6], ones(ids[2:4, :6]))
    live.join(joining)
    assert live.mask.shape == (2, 6)


def test_a_cache_with_a_window_takes_no_new_sequences(ids):
    from tests.evaluation.conftest import tiny_model

    model = tiny_model(use_sliding_window=True, sliding_window=4, max_window_layers=0)
    live = LiveBatch(model)
    assert live.can_join()
    with torch.no_grad():
        live.prefill(ids[:, :4], ones(ids[:, :4]))
    assert not live.can_join()


def test_rows_are_selected_wherever_a_cache_keeps_them():
    class StateCache:
        def __init__(self):
            self.states = {0: torch.arange(6).view(3, 2), "more": [torch.arange(3), (torch.arange(3), None)]}
            self.lengths = torch.tensor([7])
            self.model = torch.nn.Linear(3, 3)

    cache = StateCache()
    weight = cache.model.weight
    assert select_rows(cache, 3, torch.tensor([0, 2])) is cache
    assert cache.states[0].tolist() == [[0, 1], [4, 5]]
    assert cache.states["more"][0].tolist() == [0, 2]
    assert cache.states["more"][1][0].tolist() == [0, 2]
    assert cache.lengths.tolist() == [7]
    assert cache.model.weight is weight
