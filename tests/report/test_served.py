"""The section of a server under load: figures, pictures with words, and a page that fits a phone."""

import html5lib
import pytest

from sere.bench import standin
from sere.bench.served.record import ServedRecord
from sere.bench.served.summarise import summarise
from sere.evaluation.record import LayerExperts
from sere.provenance import Provenance
from sere.report import render
from tests.bench.served.made import activity, cell

VARIANTS = ("unmodified", "none", "sere:top_s=1")
RATES = [1.0, 4.0, float("inf")]
TPOT = {"unmodified": 40.0, "none": 41.0, "sere:top_s=1": 20.0}
RUN = Provenance.now(device="cpu", dtype="bfloat16", seeds={"prompts and arrivals": 0})


def counted(variant, rate):
    if variant == "unmodified":
        return None
    after = 40.0 if variant == "none" else 11.0
    layers = [
        LayerExperts(name=f"model.layers.{n}.mlp.experts", before=40.0, after=after + n) for n in range(2)
    ]
    return activity(variant, after).model_copy(update={"layers": layers})


def record(**changes):
    cells = [
        cell(variant, rate, repetition, TPOT[variant] + repetition, counted(variant, rate), goodput=0.5)
        for rate in RATES
        for variant in VARIANTS
        for repetition in range(2)
    ]
    values = {
        "provenance": RUN,
        "runs": [RUN, RUN],
        "model": standin.record(2),
        "stand_in": standin.described(2),
        "config": {"input_tokens": 16, "output_tokens": 64, "objective": {"tpot": 30.0}},
        "environment": {"VLLM_CPU_KVCACHE_SPACE": "1"},
        "cells": cells,
        "summaries": summarise(cells, VARIANTS, RATES),
    }
    return ServedRecord(**{**values, **changes})


@pytest.fixture
def page(tmp_path):
    record().save(tmp_path / "bench.json")
    return render([tmp_path / "bench.json"])


def test_the_tables_hold_the_records_medians_and_ranges(page):
    # unmodified 40 and 41 ms, sere 20 and 21: 40 / 20 and 41 / 21
    assert "<td>20.5 (20.0 to 21.0)</td>" in page
    assert "<td>1.98\u00d7 (1.95 to 2.00)</td>" in page
    assert "<td>11.0 (28%)</td>" in page
    assert "Goodput: requests a second within tpot 30 ms." in page


def test_pictures_say_their_figures_in_words_and_have_a_table(page):
    assert (
        'aria-label="Time per further token: unmodified 40.5 (40.0 to 41.0) at 1, 40.5 (40.0 to 41.0) at 4, '
        "40.5 (40.0 to 41.0) at all at once; none 41.5" in page
    )
    assert "Distinct experts by layer at all at once" in page
    assert "Speed of decoding at 4 requests/s" in page
    html5lib.HTMLParser(strict=True).parse(page)


def test_a_stand_in_is_marked_and_the_run_described(page):
    assert "it says nothing about quality" in page
    assert "VLLM_CPU_KVCACHE_SPACE=1" in page
    assert "input tokens: 16, output tokens: 64" in page
    assert "counters saw 100% or more" in page
    assert "The fastest setting, sere:top_s=1 at 1 request/s, ran at 1.98\u00d7 (1.95 to 2.00)" in page


def test_a_control_that_costs_time_is_said(page):
    assert "The path itself costs time at 4 requests/s (bench.json)" in page


def test_unanswered_requests_are_said(tmp_path):
    cells = [cell("unmodified", failed=2), cell("none", active=activity("none", 40.0))]
    found = record(cells=cells, summaries=summarise(cells, ("unmodified", "none"), [2.0]))
    found.save(tmp_path / "bench.json")
    assert "not answered (unmodified at 2 requests/s: 2)" in render([tmp_path / "bench.json"])


def test_a_load_without_tpot_or_counters_has_dashes(tmp_path):
    cells = [cell(tpot=40.0).model_copy(update={"load": cell().load.model_copy(update={"tpot": None})})]
    found = record(cells=cells, summaries=summarise(cells, ("unmodified",), [2.0]), config={}, model=None)
    found.save(tmp_path / "bench.json")
    text = render([tmp_path / "bench.json"])
    assert "<td>\u2013</td>" in text
    assert "Time per further token" not in text


def test_a_control_at_the_same_speed_costs_no_time(tmp_path):
    cells = [cell(tpot=40.0), cell("none", tpot=40.1, active=activity("none", 40.0))]
    found = record(cells=cells, summaries=summarise(cells, ("unmodified", "none"), [2.0]))
    found.save(tmp_path / "bench.json")
    assert "The path itself costs time" not in render([tmp_path / "bench.json"])
