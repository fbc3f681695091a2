"""The report for a model card."""

import math

import pytest

from sere.evaluation.quality import model_report


def test_report_equals_the_direct_computation(model, tokenizer):
    import torch

    from sere.evaluation.tokens import encode

    texts = ["one text", "another, longer text"]
    report = model_report(
        model, tokenizer, examples_per_task=1, texts=texts, baseline_texts=["aab"], batch_size=2
    )
    total = 0.0
    for text in texts:
        ids = torch.tensor([encode(tokenizer, text)])
        with torch.no_grad():
            total += float(model(input_ids=ids, labels=ids).loss) * (ids.shape[1] - 1)
    assert report["tokens"] == report["bytes"] == 28
    assert report["text_loss"] == pytest.approx(total / 28, rel=1e-4)
    assert report["bits_per_byte"] == pytest.approx(total / 28 / math.log(2), rel=1e-4)
    # Counts: a 2, b 1, and add-one smoothing over 257 tokens; the texts hold one a and no b.
    expected = (math.log(260 / 3) + 27 * math.log(260)) / 28
    assert report["unigram_loss"] == pytest.approx(expected, rel=1e-6)
    assert len(report["tasks"]) == 10
