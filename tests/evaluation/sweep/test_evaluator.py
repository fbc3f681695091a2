"""One policy at one batch size on one seed's text, measured once."""

import pytest
import torch

from sere.bench.blocks import artifact_for
from sere.errors import ArtifactError, DataError, PolicyError
from sere.evaluation.fidelity import fidelity
from sere.evaluation.stepwise import ExpertCount, Rerouting, text_logits
from sere.evaluation.sweep import Evaluator, SweepConfig
from sere.evaluation.sweep.shares import deal, take
from sere.routing import make_policy, parse_policy
from tests.evaluation.conftest import tiny_model

TEXTS = [f"{n} times {n} is {n * n}, and that is all there is to say." for n in range(40)]
CONFIG = SweepConfig(seeds=2, sequences=8, sequence_length=24, prompt_tokens=4)


@pytest.fixture
def evaluator(model, tokenizer, artifact):
    return Evaluator(model, tokenizer, artifact, TEXTS, CONFIG)


def test_a_point_is_what_each_batch_gives_by_itself(evaluator, model, artifact):
    point = evaluator.measure("sere:top_s=1", 4, 1)
    count, kl, agreement = ExpertCount(), [], []
    for ids in take(evaluator.shares, 1, 8).split(4):
        plain = text_logits(model, ids, 4, Rerouting(None, None), "proxy", ExpertCount())
        changed = text_logits(
            model, ids, 4, Rerouting(artifact, parse_policy("sere:top_s=1")), "proxy", count
        )
        near = fidelity(plain, changed, ids[:, 5:])
        kl += near.divergence.tolist()
        agreement += near.agreement.tolist()
    assert point.sample.kl == pytest.approx(kl, rel=1e-3)
    assert point.kl == pytest.approx(sum(kl) / 8, rel=1e-3)
    assert point.top1 == pytest.approx(sum(agreement) / 8)
    assert (point.before, point.after) == (count.mean_before, count.mean_after)
    assert point.rerouted == count.rerouted / count.slots
    assert (point.batch_size, point.seed, point.of, point.tokens) == (4, 1, 16, 8 * 19)


def test_none_is_exactly_the_unmodified_model(evaluator):
    point = evaluator.measure("none", 4, 0)
    assert point.sample.kl == [0.0] * 8
    assert (point.top1, point.perplexity_change, point.share, point.rerouted) == (1, 0, 1, 0)


def test_forwards_of_one_batch_give_the_same_as_one_of_all(model, tokenizer, artifact, evaluator):
    small = SweepConfig(seeds=2, sequences=8, sequence_length=24, prompt_tokens=4, forward_tokens=1)
    pieces = Evaluator(model, tokenizer, artifact, TEXTS, small).measure("sere:top_s=1", 2, 0)
    whole = evaluator.measure("sere:top_s=1", 2, 0)
    assert pieces.after == whole.after
    assert pieces.sample.kl == pytest.approx(whole.sample.kl, rel=1e-3)


def test_what_was_measured_is_not_measured_again(model, tokenizer, artifact, tmp_path, monkeypatch):
    file = tmp_path / "points.jsonl"
    first = Evaluator(model, tokenizer, artifact, TEXTS, CONFIG, cache=file).measure("sere:top_s=1", 4, 0)
    again = Evaluator(model, tokenizer, artifact, TEXTS, CONFIG, cache=file)
    monkeypatch.setattr(again, "_point", None)  # would fail if called
    assert again.measure("sere:top_s=1", 4, 0) == first
    assert again.measure(make_policy("sere", top_s=1), 4, 0).sample == first.sample
    assert len(again.cache) == 1


def test_anything_that_a_point_depends_on_changes_its_key(model, tokenizer, artifact, evaluator):
    def key(policy="sere:top_s=1", size=4, seed=0, model=model, artifact=artifact, texts=TEXTS, **changes):
        settings = SweepConfig(**{**vars(CONFIG), **changes})
        made = Evaluator(model, tokenizer, artifact, texts, settings, metric=None)
        return made.key(parse_policy(policy), size, seed)

    other_model = tiny_model(seed=5)
    keys = [
        key(),
        key("sere:top_s=2"),
        key("sere:top_s=1,floor=0"),
        key(size=2),
        key(seed=1),
        key(model=other_model, artifact=artifact_for(other_model, seed=1)),
        key(artifact=artifact_for(model, seed=2)),
        key(texts=TEXTS[::-1]),
        key(sequence_length=30),
        key(prompt_tokens=5),
        key(sequences=4),
    ]
    assert len(set(keys)) == len(keys)
    assert key() == keys[0]


def test_an_artifact_does_not_matter_to_a_policy_that_needs_none(model, tokenizer, artifact, evaluator):
    without = Evaluator(model, tokenizer, None, TEXTS, CONFIG)
    policy = parse_policy("top_k:k=1")
    assert without.key(policy, 4, 0) == evaluator.key(policy, 4, 0)
    with pytest.raises(PolicyError, match="needs an artifact"):
        without.measure("sere:top_s=1", 4, 0)


def test_shares_have_no_token_in_common_and_lose_none_in_the_middle(tokenizer):
    texts = [chr(ord("A") + n) * 30 for n in range(8)]
    shares = deal(tokenizer, texts, 2, 10, shuffle=0)
    letters = [set(share.flatten().tolist()) - {0} for share in shares]
    assert not letters[0] & letters[1]
    assert [len(part) for part in letters] == [4, 4]
    assert all((share[:, 0] == 0).all() for share in shares)  # each is led by the start token


def test_refusals_name_what_to_do(model, tokenizer, artifact, evaluator):
    with pytest.raises(DataError, match="Give more text"):
        evaluator.measure("none", 4000, 0)
    with pytest.raises(DataError, match="no seed 2"):
        evaluator.measure("none", 4, 2)
    with pytest.raises(DataError, match="context of 256"):
        Evaluator(model, tokenizer, artifact, TEXTS, SweepConfig(sequence_length=300))
    with pytest.raises(DataError, match="no held-out text"):
        Evaluator(model, tokenizer, artifact, [" "], CONFIG)
    with pytest.raises(ArtifactError):
        Evaluator(tiny_model(num_experts=8), tokenizer, artifact, TEXTS, CONFIG)
    with pytest.raises(DataError, match="nothing to score"):
        SweepConfig(sequence_length=16)
    with pytest.raises(DataError, match="seeds"):
        SweepConfig(seeds=0)


def test_logits_that_are_nan_are_refused(model, tokenizer, artifact, monkeypatch):
    broken = tiny_model()
    torch.nn.init.constant_(broken.lm_head.weight, float("nan"))
    with pytest.raises(Exception, match="NaN"):
        Evaluator(broken, tokenizer, artifact, TEXTS, CONFIG).measure("none", 4, 0)
