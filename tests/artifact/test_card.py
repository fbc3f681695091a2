"""The card tells a stranger what the artifact is, how to use it and what it costs."""

import json
import shlex

import yaml

from sere.artifact import OperatingPoint, card
from sere.artifact.card import CardFacts
from tests.artifact.made import artifact

POINT = OperatingPoint(
    policy="oea:top_s=3@4|oea:top_s=2@16",
    experts=17.25,
    kl=[0.04, 0.05],
    speed={"ratio": 1.5, "batch": 16},
    trace=[1, 2, 3],
    tuned={
        "kind": "kl",
        "experts_saved": 0.4,
        "sizes": [{"batch_size": 16, "before": 41.0, "after": 17.5, "loss": 0.05, "speedup": None}],
    },
)


def front(text):
    return yaml.safe_load(text.split("---")[1])


def test_the_front_matter_is_what_the_hub_reads():
    text = card.render(artifact().manifest, CardFacts("me/stats", "apache-2.0"))
    assert front(text) == {
        "base_model": "some/model",
        "base_model_relation": "adapter",
        "license": "apache-2.0",
        "library_name": "sere",
        "tags": ["mixture-of-experts", "expert-routing", "sere"],
    }
    assert "license" not in front(card.render(artifact().manifest))


def test_the_vllm_command_can_be_pasted():
    tuned = artifact().with_operating_points({"balanced": POINT})
    text = card.render(tuned.manifest, CardFacts("me/stats"))
    line = next(line for line in text.splitlines() if line.startswith("vllm serve"))
    words = shlex.split(line)
    assert words[:4] == ["vllm", "serve", "some/model", "--additional-config"]
    assert json.loads(words[4]) == {"sere": {"artifact": "me/stats", "policy": "balanced"}}
    assert 'sere.rerouted(model, "me/stats", "balanced")' in text


def test_operating_points_come_with_what_was_measured():
    tuned = artifact().with_operating_points({"balanced": POINT})
    line = next(line for line in card.render(tuned.manifest).splitlines() if line.startswith("| `balanced`"))
    assert "`oea:top_s=3@4\\|oea:top_s=2@16`" in line
    assert "experts: 17.25; kl: 0.04 to 0.05; speed ratio: 1.5; speed batch: 16" in line
    assert "kind: kl; experts saved: 0.4; at batch 16 distinct experts 17.5, instead of 41, loss 0.05" in line
    assert "trace" not in line
    assert "None were tuned" in card.render(artifact().manifest)


def test_it_says_what_it_was_made_from_and_under_which_licence():
    text = card.render(artifact().manifest)
    assert "4 sequences of 8 tokens from my texts (seed 0, 2 batches)" in text
    assert "its licence says what may be done" in text
