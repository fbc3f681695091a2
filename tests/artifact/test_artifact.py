"""What an artifact serves, and what it refuses to be made of."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
import torch

from sere.artifact import Artifact, LayerRecord, ModelRecord, OperatingPoint, fingerprint
from sere.errors import ArtifactError
from tests.artifact.made import EXPERTS, LAYERS, MODEL, RECORD, artifact

NAME = LAYERS[1].name


def test_frobenius_is_the_default_and_is_served_as_stored():
    made = artifact()
    assert made.default_metric == "frobenius"
    assert torch.equal(made.similarity(NAME), made.tensors[f"{NAME}.frobenius"])
    assert made.similarity(NAME).dtype == torch.float32


def test_cosine_follows_from_the_normalised_moments_with_a_diagonal_of_one():
    made = artifact()
    cosine, stored = made.similarity(NAME, "cosine"), made.tensor(NAME, "gram_normalised")
    off = ~torch.eye(EXPERTS, dtype=torch.bool)
    assert torch.equal(cosine[off], stored[off])
    assert torch.equal(cosine.diagonal(), torch.ones(EXPERTS))
    assert not torch.equal(stored.diagonal(), torch.ones(EXPERTS))


def test_layers_are_found_by_name_and_by_number():
    made = artifact()
    assert made.layer(NAME) == made.layer_at(2) == LAYERS[1]
    with pytest.raises(ArtifactError, match=r"no layer 'model\.layers\.3\.mlp\.experts'.*Did you mean"):
        made.layer("model.layers.3.mlp.experts")
    with pytest.raises(ArtifactError, match=r"no layer number 3. It has: 1, 2, 5"):
        made.layer_at(3)


def test_statistics_hold_only_what_is_required():
    made = artifact()
    assert made.statistics(NAME, requires=frozenset()).similarity is None
    found = made.statistics(
        NAME, requires=frozenset({"similarity"}), metric="cosine", device="cpu"
    ).similarity
    assert found is not None
    assert torch.equal(found, made.similarity(NAME, "cosine"))
    with pytest.raises(ArtifactError, match="temperature"):
        made.statistics(NAME, requires=frozenset({"temperature"}))
    with pytest.raises(ArtifactError, match="no layer"):
        made.statistics("nothing", requires=frozenset())


def test_a_metric_that_was_not_calibrated_is_refused_with_the_choices():
    with pytest.raises(ArtifactError, match=r"'cka_linear_biased'.*Choose one of: cosine, frobenius"):
        artifact().similarity(NAME, "cka_linear_biased")
    with pytest.raises(ArtifactError, match=r"stores no 'grm'.*Did you mean 'gram'"):
        artifact().tensor(NAME, "grm")


def test_only_a_model_of_the_same_routing_shape_passes():
    made = artifact()
    made.check_model(MODEL.model_copy(update={"id": "a/copy", "revision": None}))
    fewer = ModelRecord.describe(id="other/model", architecture="mixtral", hidden_size=64, layers=LAYERS[:2])
    with pytest.raises(ArtifactError, match=r"some/model \(qwen3_moe.*other/model \(mixtral.*Calibrate"):
        made.check_model(fewer)


def test_the_fingerprint_follows_the_routing_shape_and_nothing_else():
    renamed = [each.model_copy(update={"name": f"x.{each.index}"}) for each in reversed(LAYERS)]
    assert fingerprint("qwen3_moe", 32, renamed) == MODEL.fingerprint
    assert fingerprint("qwen2_moe", 32, LAYERS) != MODEL.fingerprint
    assert fingerprint("qwen3_moe", 64, LAYERS) != MODEL.fingerprint
    for change in ({"num_experts": 7}, {"top_k": 3}, {"index": 9}):
        assert (
            fingerprint("qwen3_moe", 32, [*LAYERS[:2], LAYERS[2].model_copy(update=change)])
            != MODEL.fingerprint
        )


def test_the_hash_changes_with_any_number_and_not_with_an_operating_point():
    made = artifact()
    assert made.hash == artifact().hash
    changed = {name: value.clone() for name, value in made.tensors.items()}
    changed[f"{NAME}.frobenius"][0, 1] += 1e-6
    assert Artifact(made.manifest, changed).hash != made.hash
    tuned = made.with_operating_points({"fast": OperatingPoint(policy="sere:top_s=1", speed=1.5)})
    assert tuned.hash == made.hash
    assert tuned.operating_points["fast"].policy == "sere:top_s=1"


def test_an_artifact_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        artifact().tensors = {}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("field", ["frobenius", "norm"])
def test_nan_and_infinity_are_refused(field, value):
    made = artifact()
    made.tensors[f"{NAME}.{field}"].view(-1)[1] = value
    with pytest.raises(ArtifactError, match=f"'{field}' of layer {NAME} has NaN or infinite"):
        Artifact(made.manifest, made.tensors)


def test_missing_foreign_and_misshapen_tensors_are_refused():
    made = artifact()
    tensors = dict(made.tensors)
    lost = tensors.pop(f"{NAME}.gram")
    with pytest.raises(ArtifactError, match=f"layer {NAME} has no 'gram'"):
        Artifact(made.manifest, tensors)
    with pytest.raises(ArtifactError, match=r"belong to none of its layers.*lm_head"):
        Artifact(made.manifest, {**made.tensors, "lm_head.weight": lost})
    with pytest.raises(ArtifactError, match=r"shape \(5, 6\)"):
        Artifact(made.manifest, {**made.tensors, f"{NAME}.gram": lost[:5]})
    with pytest.raises(ArtifactError, match="bfloat16"):
        Artifact(made.manifest, {**made.tensors, f"{NAME}.gram": lost.bfloat16()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": ("frobenius", "cka_rbf_biased")}, "promises similarities.*cka_rbf_biased"),
        ({"default_metric": "cka_rbf_biased"}, "promises similarities.*cka_rbf_biased"),
        ({"fields": ("frobenius", "telepathy")}, "unknown statistics.*telepathy"),
        ({"metrics": ("gram",), "default_metric": "gram"}, "'gram'.*no similarities"),
        ({"metrics": ("frobenius", "norm")}, "'norm'.*no similarities"),
        ({"layers": LAYERS[:2]}, "fingerprint"),
        ({"layers": (LAYERS[0], LAYERS[0])}, "names a layer twice"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(change, message):
    made = artifact()
    with pytest.raises(ArtifactError, match=message):
        Artifact(made.manifest.model_copy(update=change), made.tensors)


def test_what_an_artifact_was_made_of_and_what_it_serves_can_be_changed_without_changing_it():
    one = torch.rand(EXPERTS, EXPERTS)
    made = Artifact.build(
        MODEL, LAYERS, {each.name: {"frobenius": one} for each in LAYERS}, ("frobenius",), RECORD
    )
    before = made.similarity(NAME)
    one.fill_(float("nan"))
    made.similarity(NAME).fill_(float("nan"))
    made.statistics(NAME, requires=frozenset({"similarity"})).similarity.fill_(float("nan"))
    assert torch.equal(made.similarity(NAME), before)


def test_one_matrix_for_all_layers_can_be_saved(tmp_path):
    one = torch.rand(EXPERTS, EXPERTS)
    made = Artifact.build(
        MODEL, LAYERS, {each.name: {"frobenius": one} for each in LAYERS}, ("frobenius",), RECORD
    )
    made.save_pretrained(tmp_path)
    assert Artifact.from_pretrained(tmp_path).hash == made.hash


def test_an_artifact_of_nothing_is_refused():
    with pytest.raises(ArtifactError, match="needs a layer"):
        Artifact.build(MODEL, LAYERS, {}, ("frobenius",), RECORD)
    with pytest.raises(ValueError, match="num_experts"):
        LayerRecord(name="x", index=0, num_experts=0, top_k=1)
