"""Fidelity measures and their intervals, against their definitions."""

import math

import pytest
import torch

from sere.evaluation.fidelity import Fidelity, fidelity
from sere.evaluation.intervals import bootstrap, wilson


@pytest.fixture
def logits():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, 7, 11, generator=generator) * 3


def test_measures_equal_their_definitions_in_float64(logits):
    reference, other = logits
    targets = torch.randint(0, 11, (3, 7), generator=torch.Generator().manual_seed(1))
    result = fidelity(reference, other, targets)
    p, q = reference.double().softmax(-1), other.double().softmax(-1)
    torch.testing.assert_close(result.divergence, (p * (p / q).log()).sum(-1).mean(1), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(result.agreement, (p.argmax(-1) == q.argmax(-1)).double().mean(1))
    loss = torch.nn.functional.cross_entropy(
        other.double().flatten(0, 1), targets.flatten(), reduction="none"
    )
    torch.testing.assert_close(result.loss, loss.view(3, 7).mean(1), rtol=1e-5, atol=1e-6)
    assert result.perplexity == pytest.approx(math.exp(loss.mean()), rel=1e-5)


def test_the_same_logits_are_perfectly_near(logits):
    result = fidelity(logits[0], logits[0], torch.zeros(3, 7, dtype=torch.long))
    assert result.divergence.tolist() == [0, 0, 0]
    assert result.agreement.tolist() == [1, 1, 1]
    assert result.perplexity == result.reference_perplexity


def test_tokens_that_the_reference_excludes_do_not_spoil_the_divergence(logits):
    reference = logits[0].clone()
    reference[..., 4] = float("-inf")
    result = fidelity(reference, logits[1], torch.zeros(3, 7, dtype=torch.long))
    assert result.divergence.isfinite().all()
    assert (result.divergence > 0).all()


def test_joined_batches_keep_their_sequences(logits):
    targets = torch.zeros(3, 7, dtype=torch.long)
    whole = fidelity(logits[0], logits[1], targets)
    parts = [fidelity(logits[0][i : i + 1], logits[1][i : i + 1], targets[i : i + 1]) for i in range(3)]
    torch.testing.assert_close(Fidelity.join(parts).divergence, whole.divergence)


def test_interval_of_a_share_has_the_width_of_the_normal_approximation():
    values = torch.tensor([1.0] * 70 + [0.0] * 30)
    low, high = bootstrap(values, seed=0)
    assert low < 0.7 < high
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(0.7 * 0.3 / 100), rel=0.1)


def test_interval_follows_from_the_seed():
    values = torch.randn(40, generator=torch.Generator().manual_seed(2))
    assert bootstrap(values, seed=1) == bootstrap(values, seed=1)
    assert bootstrap(values, seed=1) != bootstrap(values, seed=2)


def test_interval_of_one_value_is_the_value():
    assert bootstrap(torch.tensor([0.25]), seed=0) == (0.25, 0.25)


def test_interval_of_a_share_solves_the_score_equation():
    for right, count in ((0, 20), (1, 20), (37, 50), (20, 20)):
        share = right / count
        for end in wilson(right, count):
            if 0 < end < 1:
                assert abs(share - end) == pytest.approx(
                    1.959964 * math.sqrt(end * (1 - end) / count), rel=1e-5
                )


def test_a_share_of_all_or_nothing_is_not_certain():
    assert wilson(20, 20) == (pytest.approx(0.8389, abs=1e-4), 1.0)
    assert wilson(0, 20) == (0.0, pytest.approx(0.1611, abs=1e-4))
