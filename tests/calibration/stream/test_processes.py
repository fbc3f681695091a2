"""Two processes share the batches and write what one process writes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sere.calibration.stream.processes import Processes
from tests.calibration.stream.made import written


@pytest.mark.parametrize("batches", [1, 4, 5])
def test_rounds_give_every_batch_to_one_process(batches):
    processes = Processes()
    rounds = []
    for processes.rank in range(3):
        processes.count = 3
        rounds.append(processes.rounds(batches))
    assert {len(each) for each in rounds} == {-(-batches // 3)}
    in_turn = [batch for turn in zip(*rounds, strict=True) for batch in turn if batch is not None]
    assert in_turn == list(range(batches))


@pytest.mark.slow
def test_two_processes_write_the_bytes_of_one(tmp_path):
    options = ["calibrate", "demo", "--sequences", "5", "--batch-sequences", "2", "--threads", "1"]
    options += ["--length", "32", "--device", "cpu", "--routed-moments", "--norm-predictor"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    shared = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, launcher in (("one", [sys.executable]), ("two", shared)):
        done = subprocess.run(
            [*launcher, "-m", "sere", *options, "-o", str(tmp_path / name)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("Written to") == 1
    assert written(tmp_path / "one") == written(tmp_path / "two")
