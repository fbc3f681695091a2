"""A tiny random model with texts enough for sixteen shares."""

import pytest

from sere.calibration import CalibrationConfig, calibrate
from sere.evaluation.sweep import Evaluator, SweepConfig
from tests.evaluation.conftest import byte_tokenizer, tiny_model

TEXTS = [f"{n} times {n} is {n * n}, and that is all there is to say." for n in range(120)]
CONFIG = SweepConfig(seeds=8, sequences=4, sequence_length=24, prompt_tokens=4)


@pytest.fixture(scope="session")
def model():
    return tiny_model()


@pytest.fixture(scope="session")
def tokenizer():
    return byte_tokenizer()


@pytest.fixture(scope="session")
def artifact(model, tokenizer):
    return calibrate(model, tokenizer, config=CalibrationConfig(sequences=8, sequence_length=32))


@pytest.fixture(scope="session")
def evaluator(model, tokenizer, artifact):
    return Evaluator(model, tokenizer, artifact, TEXTS, CONFIG)
