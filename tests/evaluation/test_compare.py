"""The whole comparison, on a tiny model."""

import importlib
import json
import math

import pytest
import torch

from sere.bench.blocks import artifact_for
from sere.errors import ArtifactError, DataError, EngineError, PolicyError
from sere.evaluation import CompareConfig, ComparisonRecord, compare
from tests.evaluation.conftest import tiny_model

TEXTS = [f"{n} times {n} is {n * n}, and that is all there is to say." for n in range(40)]
CONFIG = CompareConfig(
    batch_sizes=(1, 4), sequences=4, sequence_length=24, prompt_tokens=4, tasks="bundled",
    examples_per_task=1, speed_rounds=2,
)  # fmt: skip
POLICIES = ["top_k:k=1", "sere:top_s=1", "sere:top_s=2"]


@pytest.fixture(scope="module")
def record(model, tokenizer, artifact):
    return compare(model, tokenizer, artifact, POLICIES, CONFIG, texts=TEXTS)


def test_every_batch_size_has_both_controls_and_every_policy(record):
    names = ["unmodified", "none", *POLICIES]
    assert [(r.batch_size, r.policy) for r in record.results] == [(b, n) for b in (1, 4) for n in names]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_none_is_the_unmodified_model(record, batch_size):
    unmodified, none = record.result("unmodified", batch_size), record.result("none", batch_size)
    assert none.fidelity == unmodified.fidelity
    assert none.fidelity.kl == 0
    assert none.fidelity.top1_agreement == 1
    assert none.fidelity.perplexity_change == 0
    assert none.experts == unmodified.experts
    assert none.experts.rerouted == 0
    assert none.tasks == unmodified.tasks


def test_a_single_sequence_is_never_changed_by_sere(record):
    alone = record.result("sere:top_s=1", 1)
    assert alone.fidelity.kl == 0
    assert alone.experts.after == alone.experts.before == 4


def test_only_policies_that_share_experts_depend_on_the_company(record):
    seen = {p: record.result(p, 4).company for p in ["unmodified", "none", *POLICIES]}
    for alone in ("unmodified", "none", "top_k:k=1"):
        assert seen[alone].kl < 1e-9
        assert seen[alone].top1 == 1
    assert seen["sere:top_s=1"].kl > seen["sere:top_s=2"].kl > 1e-4
    assert seen["sere:top_s=1"].top1 < 1
    assert (seen["none"].sequences, seen["none"].tokens) == (8, 8 * 19)
    assert record.result("sere:top_s=1", 1).company is None


def test_truncation_to_one_expert_reads_one_at_batch_one(record):
    assert record.result("top_k:k=1", 1).experts.after == 1
    assert record.result("top_k:k=1", 1).experts.of == 16


def test_fewer_shared_experts_are_read_and_more_is_lost(record):
    one, two, none = (record.result(p, 4) for p in ("sere:top_s=1", "sere:top_s=2", "none"))
    assert one.experts.after < two.experts.after < none.experts.after
    assert one.fidelity.kl > two.fidelity.kl > 0
    low, high = one.fidelity.kl_interval
    assert low < one.fidelity.kl < high


def test_sizes_are_as_configured(record):
    result = record.result("sere:top_s=1", 4)
    assert result.fidelity.sequences == 4
    assert result.fidelity.tokens == 4 * (24 - 1 - 4)
    assert result.tasks.examples == 10
    assert result.speed.rounds == 2
    assert record.result("unmodified", 4).speed.ratio == 1


def test_the_record_says_how_it_was_made(record, artifact, model):
    from sere.engines.transformers import describe

    assert record.artifact == artifact.hash
    assert record.model == describe(model)
    assert record.provenance.threads == torch.get_num_threads()
    assert record.provenance.command
    assert record.provenance.versions["torch"] == torch.__version__
    assert record.config["seed"] == 0


def test_the_record_survives_its_file(record, tmp_path):
    path = tmp_path / "record.json"
    record.save(path)
    assert json.loads(path.read_text(encoding="utf-8"))["kind"] == "sere-comparison"
    assert ComparisonRecord.load(path).model_dump(mode="json") == record.model_dump(mode="json")


def test_figures_that_are_no_numbers_survive_the_file_too(record, tmp_path):
    lost = record.model_copy(deep=True)
    lost.results[2].fidelity.perplexity = math.inf
    lost.results[2].fidelity.kl = math.nan
    lost.save(tmp_path / "record.json")
    read = ComparisonRecord.load(tmp_path / "record.json").results[2].fidelity
    assert read.perplexity == math.inf
    assert math.isnan(read.kl)


DAMAGE = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda _text: "",
    "of another kind": lambda _text: "{}",
    "of another version": lambda text: text.replace('"version": 1', '"version": 2'),
    "with a word for a figure": lambda text: text.replace('"kl": 0.0', '"kl": "many"'),
    "without a field": lambda text: text.replace('"top1_agreement"', '"top1"'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_is_refused_in_one_line(record, tmp_path, damage):
    path = tmp_path / "record.json"
    record.save(path)
    path.write_text(DAMAGE[damage](path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(DataError, match=r"^\S+ is no comparison record: [^\n]+\. Make one with[^\n]+$"):
        ComparisonRecord.load(path)


def test_a_record_that_is_no_text_or_not_there_is_refused(tmp_path):
    (tmp_path / "record.json").write_bytes(b"\xff\xfe\x00")
    for name, reason in (("record.json", "it is not text"), ("nowhere.json", "No such file")):
        with pytest.raises(DataError, match=f"no comparison record: {reason}"):
            ComparisonRecord.load(tmp_path / name)


def test_a_result_that_is_not_there_is_named(record):
    with pytest.raises(DataError, match=r"no 'sere:top_s=3' at batch size 4. It has: unmodified at 1"):
        record.result("sere:top_s=3", 4)


def test_both_modes_measure_the_same(model, tokenizer, artifact):
    settings = {"batch_sizes": (4,), "sequences": 8, "sequence_length": 24, "speed_rounds": 0}
    real, proxy = (
        compare(
            model, tokenizer, artifact, POLICIES, CompareConfig(mode=mode, prompt_tokens=4, **settings),
            texts=TEXTS,
        )
        for mode in ("real", "proxy")
    )  # fmt: skip
    for a, b in zip(real.results, proxy.results, strict=True):
        assert a.experts == b.experts
        assert a.fidelity.kl == pytest.approx(b.fidelity.kl, rel=1e-3, abs=1e-7)
        assert a.fidelity.perplexity == pytest.approx(b.fidelity.perplexity, rel=1e-4)


def test_a_task_file_is_used(model, tokenizer, tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text('{"prompt": "1+1=", "answer": "2"}\n', encoding="utf-8")
    config = CompareConfig(
        batch_sizes=(2,), sequences=2, sequence_length=12, prompt_tokens=4, tasks=str(path), speed_rounds=0
    )
    record = compare(model, tokenizer, None, [], config, texts=TEXTS)
    assert record.results[0].tasks.by_task.keys() == {"sums"}
    assert record.artifact is None


SMALL = CompareConfig(batch_sizes=(2,), sequences=2, sequence_length=12, prompt_tokens=4, speed_rounds=0)


def test_a_policy_given_twice_is_refused(model, tokenizer, artifact):
    with pytest.raises(PolicyError, match=r"'sere' is given twice"):
        compare(model, tokenizer, artifact, ["sere", "sere"], SMALL, texts=TEXTS)


def test_a_policy_that_needs_an_artifact_is_refused_without_one(model, tokenizer):
    with pytest.raises(PolicyError, match=r"'sere:top_s=1' needs an artifact. Calibrate"):
        compare(model, tokenizer, None, ["sere:top_s=1"], SMALL, texts=TEXTS)


def test_an_artifact_of_another_model_is_refused(model, tokenizer):
    foreign = artifact_for(tiny_model(num_experts=8))
    with pytest.raises(ArtifactError, match="Calibrate the model"):
        compare(model, tokenizer, foreign, ["sere"], SMALL, texts=TEXTS)


def test_a_dense_model_is_refused(tokenizer):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    dense = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=257, hidden_size=32, num_hidden_layers=1, intermediate_size=32, num_attention_heads=4
        )
    )
    with pytest.raises(EngineError):
        compare(dense, tokenizer, None, ["top_k:k=1"], SMALL, texts=TEXTS)


def test_sequences_beyond_the_context_are_refused(model, tokenizer):
    config = CompareConfig(batch_sizes=(2,), sequences=2, sequence_length=300, speed_rounds=0)
    with pytest.raises(DataError, match="longer than the model's context of 256"):
        compare(model, tokenizer, None, [], config, texts=TEXTS)


LONG = '{"prompt": "' + "x" * 300 + '", "answer": "y"}'


@pytest.mark.parametrize(
    ("changes", "metric", "error", "message"),
    [
        ({"batch_sizes": (2, 64), "sequences": 64}, None, DataError, "64 were asked for"),
        ({"tasks": "long"}, None, DataError, "prompt 1 has 301 tokens"),
        ({}, "cosine", ArtifactError, "cannot serve metric 'cosine'"),
    ],
)
def test_what_can_be_refused_is_refused_before_anything_is_measured(
    model, tokenizer, artifact, tmp_path, monkeypatch, changes, metric, error, message
):
    module = importlib.import_module("sere.evaluation.compare")
    (tmp_path / "long").write_text(LONG, encoding="utf-8")
    changes = {**changes, "tasks": str(tmp_path / "long")} if "tasks" in changes else changes
    settings = {"batch_sizes": (2,), "sequences": 2, "sequence_length": 12, "prompt_tokens": 4, **changes}
    monkeypatch.setattr(module, "text_logits", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(error, match=message):
        compare(model, tokenizer, artifact, ["sere"], CompareConfig(**settings), texts=TEXTS, metric=metric)


def test_a_model_without_a_head_is_refused(model, tokenizer):
    with pytest.raises(EngineError, match=r"predicts no tokens\. Load it as a causal language model"):
        compare(model.model, tokenizer, None, [], SMALL, texts=TEXTS)


def test_logits_that_are_no_numbers_are_refused(tokenizer):
    broken = tiny_model()
    with torch.no_grad():
        broken.lm_head.weight[3] = math.nan
    with pytest.raises(EngineError, match=r"logits are NaN in torch.float32.*--dtype"):
        compare(broken, tokenizer, None, [], SMALL, texts=TEXTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"examples_per_task": 101}, "100 of each task are held out"),
        ({"batch_sizes": ()}, "batch sizes must be 1 or more"),
        ({"batch_sizes": (4, 0)}, "batch sizes must be 1 or more"),
        ({"batch_sizes": (4, 4)}, "name one twice"),
        ({"mode": "guess"}, "mode must be"),
        ({"sequences": 0}, "sequences must be 1 or more"),
        ({"speed_rounds": -1}, "speed_rounds must be 0"),
        ({"sequence_length": 18}, "leave nothing to score"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(DataError, match=message):
        CompareConfig(**settings)


def test_sequences_are_full_batches_and_at_most_sixteen_of_them():
    config = CompareConfig(sequences=70)
    assert [config.sequences_for(size) for size in (1, 4, 16, 64, 128)] == [16, 64, 64, 64, 128]
