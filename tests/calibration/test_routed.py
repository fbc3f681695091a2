"""Moments of routed tokens: the sums one would write down, and nothing else changed."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

from sere.artifact import ROUTED_FIELDS, Artifact, fields
from sere.calibration import calibrate
from sere.calibration.packing import pack
from sere.calibration.routed import RoutedMoments
from sere.errors import ArtifactError
from tests.artifact.made import artifact as made
from tests.calibration import oracle
from tests.calibration.fakes import QUICK, TEXTS, Characters, small_model
from tests.calibration.test_calibrate import expert_outputs

ROUTED = replace(QUICK, routed_moments=True)


def routing(model, ids: torch.Tensor) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What each layer's router chose: ids and weights."""
    found = {}
    handles = []
    for number, layer in enumerate(model.model.layers):

        def keep(module, inputs, number=number):
            found[f"model.layers.{number}.mlp.experts"] = tuple(each.numpy() for each in inputs[1:3])

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
    return calibrate(model, Characters(), TEXTS, config=ROUTED)


def test_every_sum_is_its_definition_over_the_tokens_that_the_router_sent(model, artifact):
    ids = pack(TEXTS, Characters(), sequences=6, length=16, seed=0)
    outputs, routes = expert_outputs(model, ids), routing(model, ids)
    for layer in artifact.layers:
        wanted = oracle.routed_sums(outputs[layer.name], *routes[layer.name])
        assert wanted["routed_count"].trace() == 6 * 16 * 3
        for name in ROUTED_FIELDS:
            scale = abs(wanted[name]).max()
            assert artifact.tensor(layer.name, name).numpy() == pytest.approx(
                wanted[name], rel=1e-4, abs=1e-6 * scale
            ), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slots_that_route_nowhere_do_not_count_and_a_repeated_expert_counts_once(dtype):
    draw = torch.Generator().manual_seed(0)
    outputs = torch.randn(5, 40, 7, generator=draw).to(dtype)
    ids = torch.randint(-1, 7, (40, 4), generator=draw)
    weights = torch.rand(40, 4, generator=draw).masked_fill(torch.rand(40, 4, generator=draw) < 0.2, 0)
    moments = RoutedMoments(5)
    moments.add(outputs, ids, weights)
    wanted = oracle.routed_sums(outputs.double().numpy(), ids.numpy(), weights.numpy())
    assert wanted["routed_count"].sum() > 100
    for name, value in moments.sums().items():
        assert value.numpy() == pytest.approx(wanted[name], rel=1e-9, abs=1e-9), name
    assert torch.equal(moments.gram, moments.gram.T)


def test_sums_of_two_texts_add_up_to_those_of_both():
    draw = torch.Generator().manual_seed(1)
    outputs, weights = torch.randn(6, 50, 8, generator=draw), torch.rand(50, 3, generator=draw)
    ids = torch.rand(50, 6, generator=draw).topk(3).indices
    whole, first, second = (RoutedMoments(6) for _ in range(3))
    whole.add(outputs, ids, weights)
    first.add(outputs[:, :17], ids[:17], weights[:17])
    second.add(outputs[:, 17:], ids[17:], weights[17:])
    for name, value in whole.sums().items():
        assert torch.allclose(first.sums()[name] + second.sums()[name], value, rtol=1e-12, atol=1e-12), name


@pytest.mark.parametrize("change", [{"batch_sequences": 3}, {"batch_sequences": 4}, {"chunk_tokens": 1}])
def test_neither_batches_nor_chunks_change_the_sums(model, artifact, change):
    other = calibrate(model, Characters(), TEXTS, config=replace(ROUTED, **change))
    for layer in artifact.layers:
        for name in ROUTED_FIELDS:
            one, two = (each.tensor(layer.name, name) for each in (artifact, other))
            assert torch.allclose(one, two, rtol=1e-4, atol=1e-6 * float(one.abs().max())), name


def test_all_else_stays_the_same_bit_for_bit_and_no_forward_is_added(model, artifact, monkeypatch):
    calls = []
    kind = type(model.model.layers[0].mlp.experts)
    plain = kind.forward

    @functools.wraps(plain)
    def counted(self, *args, **options):
        calls.append(len(args[0]))
        return plain(self, *args, **options)

    monkeypatch.setattr(kind, "forward", counted)
    without = calibrate(model, Characters(), TEXTS, config=QUICK)
    before = calls.copy()
    calls.clear()
    calibrate(model, Characters(), TEXTS, config=ROUTED)
    assert calls == before
    assert set(artifact.manifest.fields) - set(without.manifest.fields) == set(ROUTED_FIELDS)
    assert all(torch.equal(value, artifact.tensors[name]) for name, value in without.tensors.items())


def test_they_come_back_from_a_folder(artifact, tmp_path):
    artifact.save_pretrained(tmp_path)
    back = Artifact.from_pretrained(tmp_path)
    assert back.hash == artifact.hash
    found = back.statistics(back.layers[0].name, requires=frozenset({"routed_cross", "norm"}))
    assert torch.equal(found.routed_cross, artifact.tensor(artifact.layers[0].name, "routed_cross"))


def test_an_artifact_without_them_loads_and_says_how_to_get_them(tmp_path):
    made().save_pretrained(tmp_path)
    old = Artifact.from_pretrained(tmp_path)
    with pytest.raises(ArtifactError, match=r"no 'routed_norm'\. Calibrate again with --routed-moments"):
        old.statistics(old.layers[0].name, requires=frozenset({"routed_norm"}))


def test_a_reader_that_does_not_know_them_refuses_them_by_name(artifact, tmp_path, monkeypatch):
    artifact.save_pretrained(tmp_path)
    monkeypatch.setattr(fields, "FIELDS", tuple(name for name in fields.FIELDS if name not in ROUTED_FIELDS))
    with pytest.raises(ArtifactError, match=r"unknown statistics \['routed_count'.*Update sere"):
        Artifact.from_pretrained(tmp_path)


def test_one_of_another_shape_is_refused(artifact):
    name = f"{artifact.layers[0].name}.routed_norm"
    tensors = {**artifact.tensors, name: torch.zeros(8, 8)}
    with pytest.raises(ArtifactError, match=r"'routed_norm' of layer .* of shape \(8, 8\)"):
        Artifact(artifact.manifest, tensors)
