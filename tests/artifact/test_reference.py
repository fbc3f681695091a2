"""Import of the published code's similarity file."""

from __future__ import annotations

import os
import pickle
import random
import re

import pytest
import torch

from sere.artifact import Artifact
from sere.errors import ArtifactError
from tests.artifact.made import LAYERS, MODEL, artifact


def matrices(dtype=torch.float32) -> dict[int, torch.Tensor]:
    return {layer.index: artifact().similarity(layer.name).to(dtype) for layer in LAYERS}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "similarity_matrices.pt"


def test_matrices_are_taken_over_by_layer_number(path, tmp_path):
    torch.save(matrices(), path)
    made = Artifact.from_reference(path, MODEL, LAYERS)
    assert (made.metrics, made.manifest.calibration.source) == (("frobenius",), "reference")
    for layer in LAYERS:
        assert torch.equal(made.similarity(layer.name), matrices()[layer.index])
    made.save_pretrained(tmp_path / "out")
    assert Artifact.from_pretrained(tmp_path / "out").hash == made.hash


def test_bfloat16_matrices_become_float32(path):
    torch.save(matrices(torch.bfloat16), path)
    assert Artifact.from_reference(path, MODEL, LAYERS).similarity(LAYERS[0].name).dtype == torch.float32


def test_published_cosines_are_turned_back_from_zero_to_one(path):
    torch.save(matrices(), path)
    made = Artifact.from_reference(path, MODEL, LAYERS, metric="cosine")
    assert torch.equal(made.similarity(LAYERS[0].name, "cosine"), 2 * matrices()[1] - 1)


class Malicious:
    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


def test_a_file_that_would_run_code_is_refused_and_runs_none(path, tmp_path):
    torch.save({1: Malicious(str(tmp_path / "ran"))}, path)
    with pytest.raises(ArtifactError, match=r"holds more than tensors.*was not loaded"):
        Artifact.from_reference(path, MODEL, LAYERS)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({1: torch.eye(6), 2: torch.eye(6)}, r"holds layers \[1, 2\], the model has \[1, 2, 5\]"),
        ({index: torch.eye(5) for index in (1, 2, 5)}, "shape .5, 5., the model has 6 experts"),
        ({index: torch.full((6, 6), float("nan")) for index in (1, 2, 5)}, "NaN"),
        (torch.eye(6), "no {layer number: tensor} dictionary"),
        ({"1": torch.eye(6)}, "no {layer number: tensor} dictionary"),
    ],
)
def test_content_that_does_not_fit_is_refused(path, content, message):
    torch.save(content, path)
    with pytest.raises(ArtifactError, match=message):
        Artifact.from_reference(path, MODEL, LAYERS)


def test_missing_and_damaged_files_and_unknown_metrics_are_refused(path):
    with pytest.raises(ArtifactError, match="there is no file"):
        Artifact.from_reference(path, MODEL, LAYERS)
    torch.save(matrices(), path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ArtifactError, match=r"cannot be read|damaged"):
        Artifact.from_reference(path, MODEL, LAYERS)
    with pytest.raises(ArtifactError, match="Did you mean 'cosine'"):
        Artifact.from_reference(path, MODEL, LAYERS, metric="cosin")


@pytest.mark.parametrize(
    "change",
    [
        torch.Tensor.to_sparse,
        lambda value: value.to("meta"),
        lambda value: value.to(torch.complex64),
    ],
    ids=["sparse", "meta", "complex"],
)
def test_matrices_of_another_kind_are_refused(path, change):
    torch.save({number: change(value) for number, value in matrices().items()}, path)
    with pytest.raises(ArtifactError, match="no plain dense matrix"):
        Artifact.from_reference(path, MODEL, LAYERS)


def test_a_file_damaged_anywhere_is_an_error_that_names_it(path):
    torch.save(matrices(), path)
    whole, draw = path.read_bytes(), random.Random(0)
    pickled = pickle.dumps({1: [1.5, "x"], 2: (3,)}, 1)
    for source in [whole] * 60 + [pickled] * 60 + [b"junk", b""]:
        broken = bytearray(source[: draw.randrange(len(source))] if len(source) > 4 else source)
        for _ in range(3 if broken else 0):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        path.write_bytes(bytes(broken))
        with pytest.raises(ArtifactError, match=re.escape(path.name)):
            Artifact.from_reference(path, MODEL, LAYERS)
