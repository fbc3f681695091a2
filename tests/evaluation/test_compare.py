"""The whole comparison, on a tiny model."""

import json

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


def test_a_foreign_record_is_refused(tmp_path):
    path = tmp_path / "record.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"no comparison record"):
        ComparisonRecord.load(path)


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
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


def test_sequences_are_a_multiple_of_the_batch():
    config = CompareConfig(sequences=70)
    assert [config.sequences_for(size) for size in (1, 16, 64, 128)] == [70, 64, 64, 128]
