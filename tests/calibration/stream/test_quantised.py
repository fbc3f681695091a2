"""Quantised checkpoints: the similarities of what they were made from, within what the format loses."""

from __future__ import annotations

import json

import pytest
import torch

from sere.errors import CalibrationError
from tests.calibration.fakes import small_model
from tests.calibration.stream import quantised
from tests.calibration.stream.made import saved, streamed
from tests.engines.transformers.small import build

FORMATS = {
    "fp8, blocks": (quantised.fp8_block, 0.05),
    "fp8, tensors": (quantised.fp8_tensor, 0.05),
    "compressed-tensors, 4 bits": (quantised.compressed(4, 16), 0.1),
    "compressed-tensors, 8 bits": (quantised.compressed(8, None), 0.02),
    "gptq": (quantised.gptq, 0.1),
    "awq": (quantised.awq, 0.1),
}
"""Writer, and the tolerance of docs/calibration.md: greatest difference of a similarity."""


def difference(one, other) -> float:
    return max(
        float((one.similarity(layer.name, metric) - other.similarity(layer.name, metric)).abs().max())
        for layer in one.layers
        for metric in ("frobenius", "cosine")
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return saved(small_model().to(torch.bfloat16), tmp_path_factory.mktemp("plain") / "model")


@pytest.mark.parametrize("name", FORMATS)
def test_similarities_of_a_quantised_checkpoint_are_near_those_of_the_plain_one(name, plain, tmp_path):
    write, tolerance = FORMATS[name]
    found = difference(streamed(write(plain, tmp_path / "small")), streamed(plain))
    assert 0 < found < tolerance


def test_mxfp4_of_gpt_oss(tmp_path):
    model = build("gpt_oss", hidden_size=64, intermediate_size=64).to(torch.bfloat16)
    plain = saved(model, tmp_path / "plain")
    assert 0 < difference(streamed(quantised.mxfp4(plain, tmp_path / "small")), streamed(plain)) < 0.1


@pytest.mark.parametrize("method", ["bitsandbytes", "hqq"])
def test_other_methods_are_refused_by_name(method, plain, tmp_path):
    folder = quantised.fp8_block(plain, tmp_path / "small")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["quant_method"] = method
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CalibrationError, match=rf"\({method}\).*fp8.*Calibrate the unquantised"):
        streamed(folder)


def test_packed_integers_in_an_unknown_form_are_refused(plain, tmp_path):
    folder = quantised.awq(plain, tmp_path / "small")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["version"] = "gemv"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CalibrationError, match="4 bits in the form 'gemv'"):
        streamed(folder)
