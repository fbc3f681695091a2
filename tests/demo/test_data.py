"""The held-out text and where the bundled model lies."""

import pytest

from sere.calibration import load_texts
from sere.demo import model
from sere.demo.data import heldout_texts
from sere.errors import EngineError


def test_heldout_text_is_enough_and_was_not_calibrated_with():
    texts = heldout_texts()
    assert 90_000 < sum(map(len, texts)) < 110_000
    assert not set(texts) & set(load_texts())


def test_an_installation_without_the_model_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(model, "files", lambda _package: tmp_path)
    with pytest.raises(EngineError, match=r"bundled model is not in this installation.*Install"):
        model.bundled_model()
