"""Frobenius, cosine, norms and every CKA against the definitions, to 1e-5 relative."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sere.artifact import CKA_METRICS
from sere.calibration.cka import cka
from sere.calibration.moments import Moments
from sere.calibration.similarity import BatchMeans, cosine, frobenius
from tests.calibration import oracle

CASES = {
    "spread": (1.0, 0.0),
    "small": (0.03, 0.0),
    "large": (30.0, 0.0),
    "far from the origin": (0.1, 10.0),
    "almost equal": (1.0, 0.0),
}


def outputs(case: str, experts: int = 5, tokens: int = 37, width: int = 6) -> torch.Tensor:
    spread, mean = CASES[case]
    draw = torch.Generator().manual_seed(3)
    shared = torch.randn(1, tokens, width, generator=draw)
    own = torch.randn(experts, tokens, width, generator=draw)
    values = 0.7 * shared + (1e-3 if case == "almost equal" else 0.7) * own
    # Rows of different lengths, as real tokens have.
    lengths = torch.rand(1, tokens, 1, generator=draw) + 0.2
    return values * lengths * spread + mean * torch.randn(experts, 1, width, generator=draw)


def moments_of(values: torch.Tensor, chunk: int = 1000) -> Moments:
    moments = Moments(values.shape[0], values.device)
    for part in values.split(chunk, 1):
        moments.add(part)
    return moments


def close(found: torch.Tensor, expected: np.ndarray, relative: float = 1e-5) -> None:
    assert found.numpy() == pytest.approx(expected, rel=relative, abs=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_frobenius_is_its_definition(case):
    values = outputs(case)
    close(frobenius(moments_of(values)), oracle.frobenius(values.double().numpy()))


@pytest.mark.parametrize("case", CASES)
def test_cosine_is_its_definition(case):
    values = outputs(case)
    close(cosine(moments_of(values)), oracle.cosine(values.double().numpy()))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("metric", CKA_METRICS)
def test_cka_is_its_definition(metric, case):
    values = outputs(case)
    close(cka(values, [metric], tile=16)[metric], oracle.cka(values.double().numpy(), metric))


@pytest.mark.parametrize("metric", CKA_METRICS)
def test_cka_of_a_wide_layer_is_its_definition_in_reduced_precision_inputs(metric):
    values = outputs("spread", experts=3, tokens=64, width=200).to(torch.bfloat16)
    close(cka(values, [metric])[metric], oracle.cka(values.double().numpy(), metric))


def test_the_two_estimators_differ_and_the_biased_one_is_greater_for_unrelated_outputs():
    values = torch.randn(2, 30, 40, generator=torch.Generator().manual_seed(0))
    found = cka(values, CKA_METRICS)
    assert found["cka_linear_biased"][0, 1] > 0.5
    assert abs(found["cka_linear_unbiased"][0, 1]) < 0.2


@settings(max_examples=40, deadline=None)
@given(
    experts=st.integers(2, 9),
    tokens=st.integers(4, 30),
    width=st.integers(1, 5),
    chunk=st.integers(1, 12),
    tile=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_chunks_and_tiles_of_any_size_give_the_same(experts, tokens, width, chunk, tile, seed):
    values = torch.randn(experts, tokens, width, generator=torch.Generator().manual_seed(seed))
    whole, parts = moments_of(values), moments_of(values, chunk)
    assert torch.allclose(frobenius(whole), frobenius(parts), rtol=1e-9, atol=1e-9)
    assert torch.allclose(cosine(whole), cosine(parts), rtol=1e-9, atol=1e-9)
    one, many = cka(values, CKA_METRICS, tile=1000), cka(values, CKA_METRICS, tile=tile)
    for metric in CKA_METRICS:
        assert torch.allclose(one[metric], many[metric], rtol=1e-6, atol=1e-7), metric


def test_all_matrices_are_exactly_symmetric_with_a_diagonal_of_one():
    values = outputs("spread", experts=70, tokens=24, width=5)
    moments = moments_of(values, 7)
    for matrix in (frobenius(moments), cosine(moments), *cka(values, CKA_METRICS, tile=5).values()):
        assert torch.equal(matrix, matrix.T)
        assert torch.equal(matrix.diagonal(), torch.ones(70, dtype=torch.float64))


@pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("chunk", [7, 1000])
def test_experts_that_are_nearly_copies_of_one_keep_their_distances(apart, chunk):
    draw = torch.Generator().manual_seed(5)
    own = torch.randn(5, 37, 6, generator=draw, dtype=torch.float64) * torch.tensor([1, 2, 3, 0.5, 0.1]).view(
        -1, 1, 1
    )
    values = torch.randn(1, 37, 6, generator=draw, dtype=torch.float64) + apart * own
    # Against the definition in extended precision: float64 keeps 16 digits of what the experts share.
    close(
        frobenius(moments_of(values, chunk)),
        oracle.frobenius(values.numpy().astype(np.longdouble)).astype(float),
    )


def test_equal_experts_have_frobenius_similarity_exactly_one():
    values = outputs("spread")
    values[3] = values[1]
    assert frobenius(moments_of(values))[1, 3] == 1
    assert bool((frobenius(moments_of(values[:1].expand(4, -1, -1))) == 1).all())


def test_a_row_of_zeros_has_cosine_zero():
    values = torch.ones(2, 4, 3)
    values[0, 1] = 0
    assert cosine(moments_of(values))[0, 1] == pytest.approx(0.75)
    dead = torch.stack([torch.zeros(4, 3), torch.ones(4, 3)])
    assert torch.equal(cosine(moments_of(dead)), torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize("metric", CKA_METRICS)
def test_an_expert_of_constant_outputs_has_cka_zero_with_every_other(metric):
    values = outputs("spread", experts=4)
    values[2] = 0.3
    found = cka(values, [metric])[metric]
    assert torch.equal(found[2], torch.tensor([0.0, 0, 1, 0], dtype=torch.float64))
    assert found[0, 1] != 0


@pytest.mark.parametrize("metric", ["cka_rbf_biased", "cka_rbf_unbiased"])
def test_squared_distances_of_almost_no_variance_give_a_constant_kernel_as_published(metric):
    values = outputs("spread") * 2e-3
    assert torch.equal(cka(values, [metric])[metric], torch.eye(5, dtype=torch.float64))


def test_statistics_are_means_over_batches_of_means_over_tokens():
    batches = [outputs("spread", tokens=20), outputs("large", tokens=9)]
    means = BatchMeans(len(batches))
    for values in batches:
        means.add(moments_of(values), cka(values, ["cka_poly_unbiased"]))
    found = means.statistics()
    exact = [values.double().numpy() for values in batches]
    for metric in ("frobenius", "cka_poly_unbiased"):
        close(found[metric], np.mean([oracle.similarity(values, metric) for values in exact], 0))
    gram = np.mean([np.einsum("pth,qth->pq", values, values) / values.shape[1] for values in exact], 0)
    close(found["gram"], gram)
    close(found["norm"], np.mean([np.linalg.norm(values, axis=2).mean(1) for values in exact], 0))
    off = ~np.eye(5, dtype=bool)
    assert found["gram_normalised"].numpy()[off] == pytest.approx(
        np.mean([oracle.cosine(values) for values in exact], 0)[off], rel=1e-5, abs=1e-7
    )
    assert all(value.dtype == torch.float32 for value in found.values())


def test_the_order_of_batches_does_not_matter():
    batches = [moments_of(outputs(case)) for case in ("spread", "large", "far from the origin")]
    forward, backward = BatchMeans(len(batches)), BatchMeans(len(batches))
    for batch in batches:
        forward.add(batch, {})
    for batch in reversed(batches):
        backward.add(batch, {})
    for name, value in forward.statistics().items():
        assert torch.allclose(value, backward.statistics()[name], rtol=1e-6, atol=0)


def test_a_broken_expert_is_named():
    values = outputs("spread")
    values[3, 5, 1] = float("nan")
    assert moments_of(values).broken_expert() == 3
    values[2, 0, 0] = float("inf")
    assert moments_of(values, 4).broken_expert() == 2
    assert moments_of(outputs("spread")).broken_expert() is None
