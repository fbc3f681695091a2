"""The whole tuning, on a tiny model."""

import itertools
import math
from statistics import fmean

import pytest
import torch

import sere
from sere.bench.blocks import artifact_for
from sere.errors import ArtifactError, DataError, TuningError
from sere.evaluation.sweep import Evaluator, SweepConfig
from sere.tuning import Split, Tolerance, Traffic, TuneRecord, most_shares, operating_points, tune, write
from sere.tuning.judge import Judge
from sere.tuning.ladder import finer, ladders
from sere.tuning.search import search, settle
from tests.tuning.conftest import CONFIG, TEXTS

RECIPES = ["oea", "energy", "top_k"]
BATCH = Traffic.of([(4, 1.0)])
MIXED = Traffic.parse("1:1,2:1,4:2")


@pytest.fixture(scope="module")
def limit(evaluator):
    """A tolerance in the middle of what the recipes lose."""
    return round(fmean(evaluator.measure("energy:size=7", 4, seed).kl for seed in range(8)), 4)


@pytest.fixture(scope="module")
def record(evaluator, limit):
    return tune(evaluator, f"kl<={limit}", BATCH, recipes=RECIPES)


def test_the_halves_have_no_share_in_common():
    split = Split.draw(9, 3)
    assert sorted(split.search + split.heldout) == list(range(9))
    assert (len(split.search), len(split.heldout)) == (5, 4)
    assert Split.draw(9, 3) == split != Split.draw(9, 4)
    with pytest.raises(TuningError, match="at least 4"):
        Split.draw(3, 0)


def test_the_bound_is_a_prediction_bound_of_the_heldout_mean():
    split = Split((0, 1, 2), (3, 4))
    assert split.bound([1.0, 2.0, 3.0]) == pytest.approx(2 + 2.920 * math.sqrt(1 / 3 + 1 / 2))
    assert split.bound([1.0]) == math.inf


def test_points_keep_their_part_of_the_tolerance_and_save_more_the_more_they_may_lose(record, limit):
    assert [point.name for point in record.points] == ["careful", "balanced", "fast"]
    assert [point.limit for point in record.points] == pytest.approx([limit / 4, limit / 2, limit])
    confirmed = [point for point in record.points if point.confirmed]
    assert confirmed
    for point in confirmed:
        (size,) = point.sizes
        assert size.loss.mean <= point.limit
        assert size.loss == size.kl
        assert size.bound <= point.limit
        assert size.after.mean < size.before.mean
    saved = [point.experts_saved.mean for point in confirmed]
    assert saved == sorted(saved)
    assert record.recommended == confirmed[-1].name


def test_estimates_are_of_the_heldout_shares_and_the_search_saw_only_the_others(
    evaluator, model, tokenizer, artifact, limit, monkeypatch
):
    fresh, seen = Evaluator(model, tokenizer, artifact, TEXTS, CONFIG), []
    measure = fresh.measure
    monkeypatch.setattr(
        fresh, "measure", lambda form, size, seed: seen.append((form, seed)) or measure(form, size, seed)
    )
    found = tune(fresh, f"kl<={limit}", BATCH, recipes=RECIPES, targets={"fast": 1.0})
    (point,) = found.points
    assert point.sizes[0].kl.seeds == [evaluator.measure(point.policy, 4, seed).kl for seed in found.heldout]
    assert {form for form, seed in seen if seed in found.heldout} == {point.policy}
    assert {seed for form, seed in seen[: -len(found.heldout)]} == set(found.search)


def test_the_choice_is_the_cheapest_of_all_settings_that_surely_pass(evaluator, record, limit):
    judge, tolerance = (
        Judge(evaluator, Split(tuple(record.search), tuple(record.heldout))),
        Tolerance.parse(f"kl<={limit}"),
    )
    forms = itertools.chain.from_iterable(finer(each, 4) for each in ladders(RECIPES, 16, 4).values())
    trials = [judge.passing(form, 4, tolerance) for form in forms]
    best = min((trial for trial in trials if trial is not None), key=judge.cost)
    assert record.point("fast").policy == best.policy


def test_whatever_loses_too_much_for_sure_is_given_up_early(evaluator, limit):
    judge = Judge(evaluator, Split(tuple(range(6)), (6, 7)))
    assert judge.passing("top_k:k=1", 4, Tolerance("", "kl", limit / 100)) is None
    assert {share for _, _, share in judge.seen} < set(range(6))


def test_time_is_made_least_where_it_is_predicted(evaluator, limit):
    def slow_unless_top_k(policy, size, experts):
        return experts * (1.0 if policy.startswith(("top_k", "none")) else 100.0)

    wide = 2 * max(evaluator.measure("top_k:k=3", 4, seed).kl for seed in range(8))
    assert (
        not tune(evaluator, f"kl<={wide:.6f}", BATCH, recipes=RECIPES)
        .point("fast")
        .policy.startswith("top_k")
    )
    found = tune(evaluator, f"kl<={wide:.6f}", BATCH, recipes=RECIPES, step_time=slow_unless_top_k)
    point = found.point("fast")
    assert point.policy.startswith("top_k")
    (size,) = point.sizes
    assert size.speedup == pytest.approx(size.before.mean / size.after.mean)
    assert point.speedup == pytest.approx(size.speedup)


def test_nothing_is_recommended_where_nothing_keeps_the_tolerance(evaluator, artifact, tmp_path):
    found = tune(evaluator, "kl<=1e-9", BATCH, recipes=RECIPES)
    assert found.recommended is None
    assert [point.policy for point in found.points] == [None] * 3
    assert operating_points(found) == {}
    artifact.save_pretrained(tmp_path)
    assert write(found, tmp_path, tmp_path).operating_points == {}


def test_a_point_that_the_heldout_texts_do_not_confirm_is_neither_recommended_nor_written(
    record, artifact, tmp_path
):
    broken = record.model_copy(deep=True)
    broken.point("fast").confirmed = False
    artifact.save_pretrained(tmp_path)
    assert "fast" in write(record, tmp_path, tmp_path).operating_points
    kept = write(broken, tmp_path, tmp_path).operating_points
    assert kept
    assert "fast" not in kept


def test_by_traffic_every_batch_size_keeps_the_tolerance(evaluator, limit):
    found = tune(evaluator, f"kl<={limit}", MIXED, recipes=RECIPES, targets={"fast": 1.0})
    (point,) = found.points
    assert [size.batch_size for size in point.sizes] == [1, 2, 4]
    for size in point.sizes:
        assert size.loss.mean <= limit
        form = size.policy or "none"
        assert size.kl.seeds == [evaluator.measure(form, size.batch_size, seed).kl for seed in found.heldout]
    before = sum(size.weight * size.before.mean for size in point.sizes)
    after = sum(size.weight * size.after.mean for size in point.sizes)
    assert point.experts_saved.mean == pytest.approx(1 - after / before, rel=1e-2)


def test_a_recipe_that_the_artifact_cannot_serve_is_left_out_with_its_reason(model, tokenizer, limit):
    bare = Evaluator(model, tokenizer, artifact_for(model), TEXTS, CONFIG)
    found = tune(bare, f"kl<={limit}", BATCH, recipes=["top_k", "refit"], targets={"fast": 1.0})
    (refused,) = [each for each in found.candidates if each.refused]
    assert refused.recipe == "refit"
    assert "gram" in refused.refused or "norm" in refused.refused


def test_points_are_written_whole_and_served_by_name(record, model, artifact, tmp_path):
    artifact.save_pretrained(tmp_path)
    tuned = write(record, tmp_path, tmp_path)
    assert set(tuned.operating_points) == {point.name for point in record.points if point.confirmed}
    again = sere.Artifact.from_pretrained(tmp_path)
    assert again.operating_points == tuned.operating_points
    assert again.hash == artifact.hash
    name = record.recommended
    assert again.operating_points[name].policy == record.point(name).policy
    with sere.rerouted(model, again, name) as handle:
        model(torch.randint(1, 257, (6, 20)))
        assert handle.banner().startswith(f"sere: {name} in")
    card = (tmp_path / "README.md").read_text()
    assert f"tolerance: {record.tolerance}" in card
    assert "at batch 4 distinct experts" in card


def test_an_artifact_that_was_calibrated_anew_is_not_written(record, model, tmp_path):
    artifact_for(model, seed=2).save_pretrained(tmp_path)
    before = (tmp_path / "sere.json").read_bytes()
    with pytest.raises(ArtifactError, match="changed since they were tuned"):
        write(record, tmp_path, tmp_path)
    assert (tmp_path / "sere.json").read_bytes() == before


def test_a_second_run_measures_nothing_and_finds_the_same(
    model, tokenizer, artifact, record, limit, tmp_path, monkeypatch
):
    file = tmp_path / "points.jsonl"
    first = tune(
        Evaluator(model, tokenizer, artifact, TEXTS, CONFIG, cache=file),
        f"kl<={limit}",
        BATCH,
        recipes=RECIPES,
    )
    again = Evaluator(model, tokenizer, artifact, TEXTS, CONFIG, cache=file)
    monkeypatch.setattr(again, "_point", lambda *_: pytest.fail("measured again"))
    second = tune(again, f"kl<={limit}", BATCH, recipes=RECIPES)
    assert second.points == first.points == record.points
    second.save(tmp_path / "tune.json")
    assert TuneRecord.load(tmp_path / "tune.json") == second
    (tmp_path / "tune.json").write_text("{}")
    with pytest.raises(DataError, match="no record of a tuning"):
        TuneRecord.load(tmp_path / "tune.json")


def test_as_many_shares_are_dealt_as_the_texts_fill(tokenizer):
    config = SweepConfig(seeds=1, sequences=4, sequence_length=24, prompt_tokens=4)
    assert most_shares(tokenizer, TEXTS, config, 4).seeds == 16
    assert most_shares(tokenizer, TEXTS[:40], config, 16).seeds < 16
    with pytest.raises(DataError, match="Give more text"):
        most_shares(tokenizer, TEXTS[:4], config, 16)


def test_what_cannot_be_tuned_is_refused_before_anything_is_measured(model, tokenizer, evaluator):
    bare = Evaluator(model, tokenizer, None, TEXTS, CONFIG)
    with pytest.raises(TuningError, match="Calibrate the model first"):
        tune(bare, "kl<=1", BATCH)
    with pytest.raises(TuningError, match=r"\(0, 1\]"):
        tune(evaluator, "kl<=1", BATCH, targets={"fast": 2.0})
    with pytest.raises(DataError, match="Give more text"):
        tune(evaluator, "kl<=1", Traffic.of([(4000, 1.0)]))


def test_settling_and_searching_agree(evaluator, limit):
    judge, tolerance = Judge(evaluator, Split((0, 1, 2, 3), (4, 5, 6, 7))), Tolerance("", "kl", limit)
    lines = ladders(["energy"], 16, 4)
    found = search(judge, lines, 4, tolerance, 4)
    fine = finer(lines["energy"], 4)
    for start in (0, len(fine) - 1):
        assert settle(judge, fine, 4, tolerance, start) == found.best
