"""The whole sweep, on a tiny model."""

import pytest

from sere.demo.tasks import Example
from sere.errors import DataError, PolicyError
from sere.evaluation.sweep import Evaluator, Series, SweepConfig, SweepRecord, chosen, sweep
from sere.evaluation.sweep.beside import companies, near, solutions
from sere.evaluation.sweep.run import expected_seconds
from sere.routing import Policy
from sere.routing.fill import MostSimilar
from sere.routing.select import UnionTopS
from sere.routing.weigh import Keep

TEXTS = [f"{n} times {n} is {n * n}, and that is all there is to say." for n in range(60)]
CONFIG = SweepConfig(seeds=2, sequences=8, sequence_length=24, prompt_tokens=4)
SERIES = chosen(["sere", "top_k"], 16, 4)
SIZES = (1, 4)


def evaluator(model, tokenizer, artifact, cache=None):
    return Evaluator(model, tokenizer, artifact, TEXTS, CONFIG, cache=cache)


@pytest.fixture(scope="module")
def record(model, tokenizer, artifact):
    return sweep(evaluator(model, tokenizer, artifact), SERIES, SIZES)


def test_every_setting_is_there_at_every_batch_size_the_control_first(record):
    forms = ["none", *(f"sere:top_s={s}" for s in (1, 2, 3)), *(f"top_k:k={k}" for k in (1, 2, 3))]
    assert [(s.batch_size, s.policy) for s in record.settings] == [(b, f) for b in SIZES for f in forms]
    assert record.series == ["sere", "top_k"]
    assert record.batch_sizes == [1, 4]
    assert (record.points, record.measured) == (7 * 2 * 2, 7 * 2 * 2)


def test_estimates_hold_one_value_a_seed(record, model, tokenizer, artifact):
    fresh = evaluator(model, tokenizer, artifact)
    setting = next(s for s in record.at(4, "sere") if s.policy == "sere:top_s=1")
    assert setting.kl.seeds == [fresh.measure("sere:top_s=1", 4, seed).kl for seed in (0, 1)]
    assert setting.kl.low < setting.kl.mean < setting.kl.high


def test_the_control_loses_nothing(record):
    for setting in record.settings:
        if setting.series == "none":
            assert (setting.kl.mean, setting.top1.mean, setting.perplexity_change.mean) == (0, 1, 0)
            assert setting.experts == setting.before == record.before(setting.batch_size)


class StopError(Exception):
    pass


def test_an_interrupted_sweep_goes_on_where_it_was(record, model, tokenizer, artifact, tmp_path):
    file = tmp_path / "points.jsonl"

    def stop(_text, done, _total):
        if done > 60:
            raise StopError

    with pytest.raises(StopError):
        sweep(evaluator(model, tokenizer, artifact, file), SERIES, SIZES, progress=stop)
    half = len(evaluator(model, tokenizer, artifact, file).cache)
    assert 0 < half < 28
    again = sweep(evaluator(model, tokenizer, artifact, file), SERIES, SIZES)
    assert again.measured == 28 - half
    assert again.settings == record.settings
    assert len([line for line in file.read_text().splitlines() if line]) == 28
    third = sweep(evaluator(model, tokenizer, artifact, file), SERIES, SIZES)
    assert third.measured == 0
    assert third.settings == record.settings


def test_another_recipe_later_measures_only_that(model, tokenizer, artifact, tmp_path):
    file = tmp_path / "points.jsonl"
    sweep(evaluator(model, tokenizer, artifact, file), SERIES, [4])
    more = sweep(
        evaluator(model, tokenizer, artifact, file), [*SERIES, *chosen(["naee:beta=0.2"], 16, 4)], [4]
    )
    assert (more.measured, more.points) == (2, 16)


def test_policies_without_a_short_form_are_swept_by_name(model, tokenizer, artifact):
    mine = Policy("mine, S=1", UnionTopS(1), MostSimilar(0.0), Keep())
    ours = evaluator(model, tokenizer, artifact)
    found = sweep(ours, [*SERIES, Series("mine", ("mine, S=1",))], [4], built={"mine, S=1": mine})
    kl = {each.policy: each.kl for each in found.settings}
    assert kl["mine, S=1"] == kl["sere:top_s=1"]


def test_the_time_left_is_nothing_once_all_is_measured(model, tokenizer, artifact):
    ours = evaluator(model, tokenizer, artifact)
    assert expected_seconds(ours, SERIES, [4]) > 0
    sweep(ours, SERIES, [4])
    assert expected_seconds(ours, SERIES, [4]) == 0


def test_a_record_comes_back_as_it_was_saved(record, tmp_path):
    record.save(tmp_path / "sweep.json")
    assert SweepRecord.load(tmp_path / "sweep.json") == record
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DataError, match="no record of a sweep"):
        SweepRecord.load(tmp_path / "other.json")


def test_all_is_refused_before_anything_is_measured(model, tokenizer, artifact):
    ours = evaluator(model, tokenizer, None)
    with pytest.raises(PolicyError, match="needs an artifact"):
        sweep(ours, SERIES, SIZES)
    with pytest.raises(DataError, match="Give more text"):
        sweep(ours, chosen(["top_k"], 16, 4), [1, 4000])
    with pytest.raises(DataError, match="each once"):
        sweep(ours, chosen(["top_k"], 16, 4), [4, 4])
    assert len(ours.cache) == 0


def test_the_settings_nearest_to_a_share_of_experts_are_found(record):
    found = near(record, 4, [0.01, 0.5, 0.99])
    assert next(s.policy for s in found if s.series == "top_k") == "top_k:k=1"
    assert [s.policy for s in found if s.series == "sere"][-1] == "sere:top_s=3"


def test_company_changes_what_shares_experts_and_nothing_else(record, model, tokenizer, artifact, tmp_path):
    ours = evaluator(model, tokenizer, artifact)
    found = companies(ours, record, [1, 4], tmp_path / "company.jsonl")
    assert [(c.series, c.batch_size) for c in found] == [("unmodified", 4), ("sere", 4), ("top_k", 4)]
    unmodified, sere, top_k = found
    assert unmodified.kl < 1e-9
    assert top_k.kl < 1e-9
    assert sere.kl > 1e-3
    assert sere.top1 < top_k.top1 == unmodified.top1 == 1
    said = []
    assert companies(ours, record, [4], tmp_path / "company.jsonl", said.append) == found
    assert said == []


def test_exact_match_is_decoded_once_for_a_few_settings(record, model, tokenizer, artifact, tmp_path):
    ours = evaluator(model, tokenizer, artifact)
    examples = [Example("t", f"{n} and", f"{n}") for n in range(5)]
    found = solutions(ours, record, examples, 4, tmp_path / "solved.jsonl")
    assert (found[0].series, found[0].same, found[0].examples) == ("unmodified", 1, 5)
    assert {s.series for s in found} == {"unmodified", "sere", "top_k"}
    assert any(s.same < 1 for s in found)
    said = []
    assert solutions(ours, record, examples, 4, tmp_path / "solved.jsonl", said.append) == found
    assert said == []
    with pytest.raises(DataError, match="not at 16"):
        solutions(ours, record, examples, 16)
