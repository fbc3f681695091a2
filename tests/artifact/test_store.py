"""Saving and loading: whole or not at all, and nothing damaged or foreign is believed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from sere.artifact import Artifact, store
from sere.errors import ArtifactError
from tests.artifact.made import LAYERS, artifact


@pytest.fixture
def folder(tmp_path) -> Path:
    artifact().save_pretrained(tmp_path)
    return tmp_path


def edit(folder: Path, **changes: object) -> None:
    path = folder / "sere.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_is_loaded_is_what_was_saved(folder):
    made, loaded = artifact(), Artifact.from_pretrained(folder)
    assert loaded.hash == made.hash
    assert loaded.manifest.model_copy(update={"tensors_sha256": ""}) == made.manifest
    assert all(torch.equal(value, loaded.tensors[name]) for name, value in made.tensors.items())
    assert Artifact.from_pretrained(folder / "sere.json").hash == made.hash
    assert Artifact.exists_in(folder)
    assert not Artifact.exists_in(folder.parent)


def test_a_folder_holds_three_files_and_no_leftovers(folder):
    artifact(1).save_pretrained(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "sere.json", "sere.safetensors"]
    assert Artifact.from_pretrained(folder).hash == artifact(1).hash


def test_the_card_names_the_base_model(folder):
    front = (folder / "README.md").read_text().split("---")[1]
    assert 'base_model: "some/model"' in front
    assert "library_name: sere" in front


def test_the_readme_of_a_model_is_left_alone_beside_its_weights(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# The model itself\n")
    artifact().save_pretrained(tmp_path)
    assert "The model itself" in (tmp_path / "README.md").read_text()
    assert Artifact.exists_in(tmp_path)


@pytest.mark.parametrize("name", ["sere.json", "sere.safetensors"])
def test_files_of_someone_else_are_not_overwritten(tmp_path, name):
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(ArtifactError, match=f"{name} exists.*Move it away"):
        artifact().save_pretrained(tmp_path)
    assert (tmp_path / name).read_text() == '{"mine": 1}'


def test_no_space_leaves_the_old_artifact_whole(folder, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(ArtifactError, match=r"No space left on device.*free space"):
        artifact(1).save_pretrained(folder)
    assert Artifact.from_pretrained(folder).hash == artifact().hash
    assert len(list(folder.iterdir())) == 3


def test_an_interrupt_leaves_nothing_half_written(folder, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(store.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        artifact(1).save_pretrained(folder)
    assert Artifact.from_pretrained(folder).hash == artifact().hash
    assert len(list(folder.iterdir())) == 3


def test_an_output_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="cannot write the artifact to"):
        artifact().save_pretrained(tmp_path / "file" / "below")


def test_no_permission_is_an_error(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store.tempfile, "mkstemp", refuse)
    with pytest.raises(ArtifactError, match="Permission denied"):
        artifact().save_pretrained(tmp_path)


def test_a_mix_of_two_saves_is_refused(folder, tmp_path):
    artifact(1).save_pretrained(tmp_path / "other")
    (folder / "sere.safetensors").write_bytes((tmp_path / "other" / "sere.safetensors").read_bytes())
    with pytest.raises(ArtifactError, match="of another calibration"):
        Artifact.from_pretrained(folder)


def test_truncated_files_are_refused(folder):
    data = (folder / "sere.safetensors").read_bytes()
    (folder / "sere.safetensors").write_bytes(data[:-10])
    with pytest.raises(ArtifactError, match="truncated"):
        Artifact.from_pretrained(folder)
    (folder / "sere.json").write_text((folder / "sere.json").read_text()[:100])
    with pytest.raises(ArtifactError, match="truncated or no JSON"):
        Artifact.from_pretrained(folder)


def test_missing_files_are_named(folder, tmp_path):
    with pytest.raises(ArtifactError, match="is no folder with an artifact"):
        Artifact.from_pretrained(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match=r"there is no sere\.json"):
        Artifact.from_pretrained(tmp_path / "empty")
    (folder / "sere.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"sere\.safetensors is missing"):
        Artifact.from_pretrained(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "format version 2; this sere reads 1. Update sere"),
        ({"format_version": None}, "format version None"),
        ({"format": "gguf"}, "not a sere artifact"),
        ({"layers": [{"name": "x"}]}, r"damaged at layers\.0\.index"),
        ({"layers": []}, "damaged at layers"),
        ({"surprise": 1}, "damaged at surprise"),
        ({"model": 3}, "damaged at model"),
    ],
)
def test_other_versions_and_damaged_manifests_are_refused(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ArtifactError, match=message):
        Artifact.from_pretrained(folder)


def test_a_manifest_that_is_a_list_is_refused(folder):
    (folder / "sere.json").write_text("[1]")
    with pytest.raises(ArtifactError, match="not a sere artifact"):
        Artifact.from_pretrained(folder)


def rewrite(folder: Path, tensors: dict[str, torch.Tensor] | bytes) -> None:
    """Replace the tensors and make the hash fit, as a hostile or careless tool might."""
    data = tensors if isinstance(tensors, bytes) else safetensors.torch.save(tensors)
    (folder / "sere.safetensors").write_bytes(data)
    edit(folder, tensors_sha256=store.hashlib.sha256(data).hexdigest())


def test_numbers_are_checked_on_load_too(folder):
    tensors = dict(Artifact.from_pretrained(folder).tensors)
    rewrite(folder, {**tensors, f"{LAYERS[0].name}.frobenius": torch.full((6, 6), float("nan"))})
    with pytest.raises(ArtifactError, match="NaN"):
        Artifact.from_pretrained(folder)
    rewrite(folder, {name: value for name, value in tensors.items() if "layers.5." not in name})
    with pytest.raises(ArtifactError, match=r"layer model\.layers\.5\.mlp\.experts has no"):
        Artifact.from_pretrained(folder)
    rewrite(folder, b"no safetensors at all")
    with pytest.raises(ArtifactError, match="no safetensors file"):
        Artifact.from_pretrained(folder)


def test_neither_artifact_nor_calibration_import_an_engine():
    seen = "[name for name in ('transformers', 'vllm') if name in sys.modules]"
    code = f"import sys, sere.artifact, sere.calibration; print({seen})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("moves", [0, 1, 2])
def test_an_interrupt_between_two_moves_brings_the_old_artifact_back(tmp_path, monkeypatch, moves, fresh):
    if not fresh:
        artifact().save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    move, left = Path.replace, [moves]

    def interrupted(path, target):
        if left[0] == 0:
            left[0] -= 1
            raise KeyboardInterrupt
        left[0] -= 1
        return move(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        artifact(1).save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_that_cannot_be_replaced_leaves_the_others_as_they_were(folder):
    (folder / "sere.safetensors").unlink()
    (folder / "sere.safetensors").mkdir()
    old = (folder / "sere.json").read_bytes()
    with pytest.raises(ArtifactError, match=r"Is a directory.*Nothing was half-written"):
        artifact(1).save_pretrained(folder)
    assert (folder / "sere.json").read_bytes() == old
    assert len(list(folder.iterdir())) == 3


def test_links_are_replaced_and_what_they_point_at_is_left_alone(folder, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        (linked / path.name).symlink_to(path)
    artifact(1).save_pretrained(linked)
    assert Artifact.from_pretrained(linked).hash == artifact(1).hash
    assert Artifact.from_pretrained(folder).hash == artifact().hash


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    artifact().save_pretrained("~/made")
    assert Artifact.from_pretrained("~/made").hash == Artifact.from_pretrained(tmp_path / "made").hash


@pytest.mark.parametrize("name", ["~nobody-of-that-name/made", "a\0b", 3, None])
def test_names_that_are_no_place_are_refused(name):
    with pytest.raises(ArtifactError, match=r"folder"):
        Artifact.from_pretrained(name)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": "sere", "x": ' + "[" * 100_000])
def test_a_manifest_nested_without_end_is_refused(folder, text):
    (folder / "sere.json").write_text(text)
    with pytest.raises(ArtifactError, match="truncated or no JSON"):
        Artifact.from_pretrained(folder)


@pytest.mark.parametrize("field", ["num_experts", "top_k", "index"])
def test_layers_that_are_not_those_of_the_fingerprint_are_refused(folder, field):
    layers = json.loads((folder / "sere.json").read_text())["layers"]
    layers[0][field] = 3
    edit(folder, layers=layers)
    with pytest.raises(ArtifactError, match="fingerprint"):
        Artifact.from_pretrained(folder)


@pytest.mark.parametrize(
    "name", ["/models/mine", "Qwen3MoeForCausalLM", "../up/here", "a b/c", "x/y\nevil: 1"]
)
def test_the_card_links_no_base_model_that_is_no_repository(name):
    made = artifact()
    local = made.manifest.model_copy(update={"model": made.model.model_copy(update={"id": name})})
    assert "base_model" not in store.card.render(local).split("---")[1]
