"""Files that are missing, damaged or cannot be written: named errors, and nothing lost."""

from __future__ import annotations

import errno
import json
import resource
import shutil
import signal

import pytest
from safetensors.torch import load_file, save_file

from sere.calibration.stream.shards import INDEX
from sere.errors import CalibrationError
from tests.calibration.fakes import small_model
from tests.calibration.stream.made import in_memory, same, saved, streamed


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return saved(small_model(), tmp_path_factory.mktemp("damage") / "model", max_shard_size="20KB")


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def shard(folder):
    return sorted(folder.glob("*.safetensors"))[1]


def test_a_truncated_shard(copy):
    path = shard(copy)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        CalibrationError, match=f"{path.name} is truncated, damaged or unreadable.*Copy it again"
    ):
        streamed(copy)


def test_a_missing_shard(copy):
    path = shard(copy)
    path.unlink()
    with pytest.raises(CalibrationError, match=f"lacks 1 of .* weight files \\({path.name}\\)"):
        streamed(copy)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"weight_map": {"a": 3}}', '{"metadata": {}}'])
def test_an_unreadable_index(copy, content):
    (copy / INDEX).write_text(content)
    with pytest.raises(CalibrationError, match=f"{INDEX} cannot be read.*Copy it again"):
        streamed(copy)


def test_a_shard_of_another_checkpoint(copy):
    path = shard(copy)
    tensors = load_file(path)
    lost = next(iter(tensors))
    del tensors[lost]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(CalibrationError, match=f"{path.name} lacks 1 of the tensors.*{lost}"):
        streamed(copy)


def test_a_weight_that_no_file_holds(copy):
    index = json.loads((copy / INDEX).read_text())
    name = "model.layers.1.self_attn.q_proj.weight"
    path = copy / index["weight_map"].pop(name)
    tensors = load_file(path)
    del tensors[name]
    save_file(tensors, path, metadata={"format": "pt"})
    (copy / INDEX).write_text(json.dumps(index))
    with pytest.raises(CalibrationError, match=f"lacks 1 of the weights .*{name}"):
        streamed(copy)


def test_a_weight_of_another_shape(copy):
    path = (
        copy / json.loads((copy / INDEX).read_text())["weight_map"]["model.layers.1.self_attn.q_proj.weight"]
    )
    tensors = load_file(path)
    tensors["model.layers.1.self_attn.q_proj.weight"] = tensors["model.layers.1.self_attn.q_proj.weight"][:8]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(CalibrationError, match=r"q_proj.weight has shape \(8, 32\).*\(32, 32\)"):
        streamed(copy)


def test_a_full_disk_amid_the_work_keeps_the_finished_layers(whole, tmp_path):
    work = tmp_path / "work"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill(state):
        if state.layers_done == 1:  # What a full disk does: the next write fails.
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))

    try:
        with pytest.raises(
            CalibrationError, match=r"cannot write .*Free space, then run the same command again"
        ):
            streamed(whole, work=work, progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(work.glob("*.tmp"))
    seen = []
    again = streamed(whole, work=work, progress=lambda state: seen.append(state.layers_done))
    assert set(seen) == {1}
    assert same(again, in_memory(whole))


def test_no_space_for_the_state(whole, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sere.evaluation.files.os.fsync", full)
        with pytest.raises(CalibrationError, match=r"No space left on device.*run the same command again"):
            streamed(whole, work=tmp_path)
    assert same(streamed(whole, work=tmp_path), in_memory(whole))


def test_damaged_work_is_named(whole, tmp_path):
    streamed(whole, work=tmp_path)
    for path in tmp_path.glob("statistics-*"):
        path.write_bytes(b"nothing")
    with pytest.raises(CalibrationError, match=r"missing or damaged. Add --restart"):
        streamed(whole, work=tmp_path)
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(CalibrationError, match=r"state\.json is damaged. Add --restart"):
        streamed(whole, work=tmp_path)
    assert same(streamed(whole, work=tmp_path, restart=True), in_memory(whole))
