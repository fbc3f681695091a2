"""The real-size speed run, at a fraction of the width."""

import pytest

from sere.bench import RealSizeConfig, RealSizeRecord, blocks, run_real_size
from sere.bench.blocks import artifact_for, build, random_text
from sere.engines.transformers import find_layers
from sere.errors import DataError, PolicyError

SMALL = RealSizeConfig(scale=16, rounds=2, steps=3)


@pytest.fixture(scope="module")
def record():
    return run_real_size(SMALL)


def test_the_controls_come_first_and_the_unmodified_model_is_the_measure(record):
    assert [r.policy for r in record.results] == ["unmodified", "none", "sere:top_s=2", "sere:top_s=1"]
    baseline = record.results[0].speed
    assert (baseline.ratio, baseline.ratio_low, baseline.ratio_high) == (1, 1, 1)


def test_experts_fall_with_s_and_the_control_reads_what_the_model_reads(record):
    unmodified, none, two, one = (result.experts for result in record.results)
    assert unmodified == none
    assert none.after == none.before
    assert 8 <= one.after < two.after < none.after < 128
    assert one.of == 128


def test_ratios_lie_within_their_spread_and_speeds_agree_with_them(record):
    for result in record.results:
        speed = result.speed
        assert 0 < speed.ratio_low <= speed.ratio <= speed.ratio_high
        assert speed.tokens_per_second > 0
        assert speed.rounds == 2


def test_the_record_holds_the_settings(record):
    assert record.config["scale"] == 16
    read = RealSizeRecord.model_validate_json(record.model_dump_json())
    assert read.model_dump(mode="json") == record.model_dump(mode="json")


def test_the_shape_is_the_published_one():
    config = build(scale=16).config
    layer = find_layers(build(scale=16))[0]
    assert (layer.num_experts, layer.top_k) == (128, 8)
    assert (config.hidden_size * 16, config.moe_intermediate_size * 16) == (2048, 768)
    assert (config.num_attention_heads * 16, config.head_dim * 16) == (32, 128)
    assert config._experts_implementation == "grouped_mm"


def test_the_choice_of_experts_is_skewed_as_in_the_real_model(record):
    assert 42 < record.results[1].experts.before < 58


def test_the_same_seed_gives_the_same_model_similarities_and_text():
    first, second = build(scale=16, seed=3), build(scale=16, seed=3)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert a.equal(b)
    assert artifact_for(first, 1).hash == artifact_for(second, 1).hash != artifact_for(first, 2).hash
    assert random_text(4, 9, seed=5).equal(random_text(4, 9, seed=5))


def test_settings_and_policies_out_of_range_are_refused_before_anything_is_built():
    with pytest.raises(DataError, match="rounds must be 1 or more"):
        RealSizeConfig(rounds=0)
    with pytest.raises(PolicyError, match="no policy 'seer'"):
        run_real_size(RealSizeConfig(policies=("seer:top_s=1",)))


def test_too_little_memory_is_refused_before_anything_is_built(monkeypatch, tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 8000000 kB\nMemAvailable: 2000000 kB\n", encoding="utf-8")
    monkeypatch.setattr(blocks, "MEMINFO", meminfo)
    monkeypatch.setattr(blocks, "CGROUP", tmp_path / "none")
    with pytest.raises(DataError, match=r"1 block\(s\) .* need 3\.0 GB .* 2\.0 GB are available"):
        build(layers=1)
    blocks.require_memory(layers=1, scale=4)


@pytest.mark.parametrize(("limit", "enough"), [("max", True), ("1000000000", False), ("9000000000", True)])
def test_the_limit_of_a_container_counts_too(monkeypatch, tmp_path, limit, enough):
    (tmp_path / "meminfo").write_text("MemAvailable: 8000000 kB\n", encoding="utf-8")
    (tmp_path / "max").write_text(f"{limit}\n", encoding="utf-8")
    monkeypatch.setattr(blocks, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(blocks, "CGROUP", tmp_path / "max")
    if enough:
        blocks.require_memory(layers=1)
    else:
        with pytest.raises(DataError, match=r"1\.0 GB are available"):
            blocks.require_memory(layers=1)
