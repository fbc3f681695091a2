"""The same sequence beside others."""

import pytest
import torch

from sere.errors import DataError
from sere.evaluation.company import company, pool_size, sequences_for_company
from sere.evaluation.stepwise import ExpertCount, Rerouting, text_logits
from sere.routing import parse_policy

PROMPT = 4


@pytest.fixture
def ids():
    return torch.randint(1, 257, (6, 16), generator=torch.Generator().manual_seed(5))


def test_it_is_the_divergence_between_two_divisions_into_batches(model, artifact, ids):
    rerouting = Rerouting(artifact, parse_policy("sere:top_s=1"))

    def predictions(order):
        batches = [text_logits(model, ids[part], PROMPT, rerouting, "proxy", ExpertCount()) for part in order]
        rows = dict(zip([row for part in order for row in part], torch.cat(batches), strict=True))
        return torch.stack([rows[row] for row in range(6)]).double().log_softmax(-1)

    # Two batches of three become three of each other's: every second sequence of the first division.
    p, q = predictions([[0, 1, 2], [3, 4, 5]]), predictions([[0, 3, 1], [4, 2, 5]])
    kl = ((p.exp() * (p - q)).sum(-1) + (q.exp() * (q - p)).sum(-1)).mean() / 2
    found = company(model, ids, 3, PROMPT, rerouting)
    assert found.kl == pytest.approx(float(kl), rel=1e-3)
    assert found.top1 == pytest.approx(float((p.argmax(-1) == q.argmax(-1)).double().mean()))
    assert found.kl_interval[0] < found.kl < found.kl_interval[1]
    assert (found.sequences, found.tokens) == (6, 6 * 11)


def test_sequences_are_two_batches_at_least(tokenizer):
    texts = [f"text number {n} of some length" for n in range(9)]
    assert pool_size(16) == 64
    assert pool_size(64) == 128
    assert sequences_for_company(tokenizer, texts, 4, 10, seed=0).shape == (8, 10)
    assert sequences_for_company(tokenizer, texts, 5, 10, seed=0) is None


def test_less_than_two_batches_are_refused(model, ids):
    for size in (4, 6):
        with pytest.raises(DataError, match="two or more batches"):
            company(model, ids, size, PROMPT, Rerouting(None, None))
