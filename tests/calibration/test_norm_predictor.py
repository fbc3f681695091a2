"""The norm predictor: the ridge regression one would write down, over routed tokens alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sere.artifact import Artifact
from sere.calibration import calibrate
from sere.calibration.norm_predictor import ROWS, RoutedLengths, fit
from sere.calibration.packing import pack
from sere.errors import ArtifactError
from tests.artifact.made import artifact as made
from tests.calibration.fakes import QUICK, TEXTS, Characters, small_model
from tests.calibration.test_calibrate import expert_outputs
from tests.calibration.test_routed import routing

FITTED = replace(QUICK, norm_predictor=True)


def by_rows(inputs: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Least squares with one more row for each coefficient: the ridge, written as data."""
    centred = inputs - inputs.mean(0)
    ridge = np.trace(np.cov(centred.T, bias=True))
    rows = np.vstack([centred, np.sqrt(ridge) * np.eye(inputs.shape[1])])
    wanted = np.concatenate([logs - logs.mean(), np.zeros(inputs.shape[1])])
    slope = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    return np.append(slope, logs.mean() - slope @ inputs.mean(0))


def inputs_of(model, ids: torch.Tensor) -> dict[str, np.ndarray]:
    found, handles = {}, []
    for number, layer in enumerate(model.model.layers):

        def keep(module, inputs, number=number):
            found[f"model.layers.{number}.mlp.experts"] = inputs[0].reshape(-1, 32).double().numpy()

        handles.append(layer.mlp.experts.register_forward_pre_hook(keep))
    with torch.no_grad():
        model(input_ids=ids)
    for handle in handles:
        handle.remove()
    return found


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def artifact(model):
    return calibrate(model, Characters(), TEXTS, config=FITTED)


def test_every_expert_has_the_regression_over_the_tokens_that_were_routed_to_it(model, artifact):
    ids = pack(TEXTS, Characters(), sequences=6, length=16, seed=0)
    outputs, routes, inputs = expert_outputs(model, ids), routing(model, ids), inputs_of(model, ids)
    checked = 0
    for layer in artifact.layers:
        found = artifact.tensor(layer.name, "norm_predictor").numpy()
        assert found.shape == (8, 33)
        chosen = routes[layer.name][0]
        for expert in range(8):
            mine = (chosen == expert).any(1)
            if mine.sum() < 2:
                continue
            logs = np.log(np.linalg.norm(outputs[layer.name][expert][mine], axis=1))
            wanted = by_rows(inputs[layer.name][mine], logs)
            assert found[expert] == pytest.approx(wanted, rel=1e-3, abs=1e-4)
            checked += 1
    assert checked > 12


def one_batch(tokens: int, seed: int, experts: int = 3, used: int = 2) -> dict[str, torch.Tensor]:
    """Outputs whose log-length is linear in the input, routed to the first ``used`` experts."""
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, 4, generator=draw)
    slope = torch.arange(12.0).view(experts, 4) / 10
    length = (hidden @ slope.T - 1).exp()
    direction = torch.nn.functional.normalize(torch.randn(experts, tokens, 5, generator=draw), dim=2)
    lengths = RoutedLengths()
    ids = torch.stack([torch.randperm(used, generator=draw) for _ in range(tokens)])
    outputs = length.T.unsqueeze(2) * direction
    for rows in torch.arange(tokens).split(7):
        lengths.add(outputs[:, rows], ids[rows], torch.ones(len(rows), used))
    return lengths.rows(hidden)


def test_with_many_tokens_the_true_function_is_found():
    found = fit([one_batch(20_000, 0), one_batch(20_000, 1)], torch.ones(3).double())
    assert found[0].numpy() == pytest.approx([0, 0.1, 0.2, 0.3, -1], abs=1e-3)
    assert found[1].numpy() == pytest.approx([0.4, 0.5, 0.6, 0.7, -1], abs=1e-3)


def test_an_expert_without_tokens_has_its_mean_length():
    found = fit([one_batch(50, 0)], torch.tensor([1.0, 1.0, 4.0]).double())
    assert found[2].exp().tolist() == pytest.approx([1, 1, 1, 1, 4])


def test_an_expert_of_one_token_predicts_that_tokens_length():
    batch = one_batch(1, 0)
    found = fit([batch], torch.ones(3).double())
    wanted = dict(zip(batch[ROWS[1]][0].tolist(), batch[ROWS[2]][0].tolist(), strict=True))
    assert found[0, -1].exp().item() == pytest.approx(wanted[0], rel=1e-5)
    assert found[0, :-1].abs().max() == 0


def test_a_row_that_names_an_expert_twice_or_none_counts_once_or_not():
    lengths = RoutedLengths()
    ids = torch.tensor([[1, 1], [-1, 2], [3, 0]])
    lengths.add(torch.ones(3, 3, 2), ids, torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]))
    assert lengths.rows(torch.zeros(3, 2))[ROWS[1]].tolist() == [[1, -1], [-1, 2], [-1, -1]]


def test_all_else_stays_the_same_and_chunks_change_nothing(model, artifact):
    without = calibrate(model, Characters(), TEXTS, config=QUICK)
    assert set(artifact.manifest.fields) - set(without.manifest.fields) == {"norm_predictor"}
    assert all(torch.equal(value, artifact.tensors[name]) for name, value in without.tensors.items())
    other = calibrate(model, Characters(), TEXTS, config=replace(FITTED, chunk_tokens=5))
    for layer in artifact.layers:
        one, two = (each.tensor(layer.name, "norm_predictor") for each in (artifact, other))
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-5)


def test_it_comes_back_from_a_folder_and_is_named_where_it_is_missing(artifact, tmp_path):
    artifact.save_pretrained(tmp_path)
    back, name = Artifact.from_pretrained(tmp_path), artifact.layers[0].name
    found = back.statistics(name, requires=frozenset({"norm_predictor"})).norm_predictor
    assert torch.equal(found, artifact.tensor(name, "norm_predictor"))
    with pytest.raises(ArtifactError, match="Calibrate again with --norm-predictor"):
        made().statistics(made().layers[0].name, requires=frozenset({"norm_predictor"}))


@pytest.mark.parametrize("shape", [(8,), (7, 33), (8, 1), ()])
def test_one_of_another_shape_is_refused(artifact, shape):
    name = f"{artifact.layers[0].name}.norm_predictor"
    with pytest.raises(ArtifactError, match="'norm_predictor' of layer"):
        Artifact(artifact.manifest, {**artifact.tensors, name: torch.zeros(shape)})
