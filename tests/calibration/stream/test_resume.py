"""A run that was ended anywhere goes on where it was, and gives the bytes of one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from sere.calibration.stream.work import folder_for, locked
from sere.errors import CalibrationError
from tests.calibration.fakes import QUICK, small_model
from tests.calibration.stream.made import in_memory, same, saved, streamed, written
from tests.engines.transformers.small import build


class EndedError(Exception):
    """The end of a run."""


def ending(after: int):
    left = [after]

    def progress(_):
        left[0] -= 1
        if left[0] < 0:
            raise EndedError

    return progress


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(small_model(), tmp_path_factory.mktemp("resume") / "model")


@pytest.mark.parametrize("after", range(6))
def test_ended_after_any_batch_of_any_layer(after, folder, tmp_path):
    with pytest.raises(EndedError):
        streamed(folder, work=tmp_path, progress=ending(after))
    seen = []
    again = streamed(folder, work=tmp_path, progress=lambda state: seen.append(state.layers_done))
    assert same(again, in_memory(folder))
    assert len(seen) == (6 if after < 3 else 3)  # the first layer does not run twice


@pytest.mark.parametrize("after", [2, 4])
def test_ended_while_moments_of_routed_tokens_are_summed(after, folder, tmp_path):
    config = replace(QUICK, routed_moments=True, norm_predictor=True)
    with pytest.raises(EndedError):
        streamed(folder, config, work=tmp_path, progress=ending(after))
    again = streamed(folder, config, work=tmp_path)
    assert {"routed_count", "norm_predictor"} <= set(again.manifest.fields)
    assert same(again, in_memory(folder, config))


def test_ended_with_all_layers_done_but_nothing_written(folder, tmp_path):
    first = streamed(folder, work=tmp_path)
    assert same(first, streamed(folder, work=tmp_path, progress=ending(0)))


def test_a_layer_that_hands_on_more_than_its_output_runs_again(tmp_path, monkeypatch):
    folder = saved(build("gemma4"), tmp_path / "model")
    with pytest.raises(EndedError):
        streamed(folder, work=tmp_path / "work", progress=ending(QUICK.batches))
    state = tmp_path / "work" / "state.json"
    content = json.loads(state.read_text())
    content["digests"]["0"] = "something else came in"
    state.write_text(json.dumps(content))
    notes = []
    assert same(streamed(folder, work=tmp_path / "work", notice=notes.append), in_memory(folder))
    assert any("have to run again" in note for note in notes)


def test_other_settings_do_not_go_on_with_the_work(folder, tmp_path):
    with pytest.raises(EndedError):
        streamed(folder, work=tmp_path, progress=ending(4))
    with pytest.raises(CalibrationError, match=r"another calibration.*--restart"):
        streamed(folder, QUICK.__class__(**{**vars(QUICK), "metrics": ("cosine",)}), work=tmp_path)
    assert same(streamed(folder, work=tmp_path, restart=True), in_memory(folder))


def test_two_runs_on_one_output_refuse(tmp_path):
    with (
        locked(tmp_path / "out"),
        pytest.raises(CalibrationError, match="another calibration is writing"),
        locked(tmp_path / "out"),
    ):
        pass
    with locked(tmp_path / "out"):
        pass
    assert not folder_for(tmp_path / "out").exists()


def command(model, out) -> list[str]:
    options = ["--sequences", "64", "--batch-sequences", "8", "--length", "64", "--threads", "1"]
    options += ["--routed-moments", "--norm-predictor"]
    return [sys.executable, "-m", "sere", "calibrate", str(model), "-o", str(out), *options]


@pytest.mark.slow
def test_killed_at_ten_random_moments(tmp_path):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    whole, out = tmp_path / "whole", tmp_path / "out"
    started = time.monotonic()
    subprocess.run(command("demo", whole), check=True, env=environment, capture_output=True)
    length = time.monotonic() - started
    draw = random.Random(0)
    for _ in range(10):
        running = subprocess.Popen(
            command("demo", out), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        timer = threading.Timer(draw.uniform(0.3, 1) * length, os.kill, (running.pid, signal.SIGKILL))
        timer.start()
        running.wait()
        timer.cancel()
        if out.exists() and (out / "sere.json").exists():
            assert written(out) == written(whole)
            for path in out.iterdir():
                path.unlink()
    done = subprocess.run(command("demo", out), check=False, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert written(out) == written(whole)
    assert not folder_for(out).exists()
