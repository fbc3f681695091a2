"""Threads are pinned for a measurement and given back."""

import os

import pytest
import torch

from sere.bench import fastest, pinned
from sere.bench import threads as module


def test_the_number_of_threads_is_put_back_even_after_an_error():
    before = torch.get_num_threads()

    def fail():
        with pinned(1) as used:
            assert used == torch.get_num_threads() == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("times", "best"), [({1: 1.0, 2: 0.5}, 2), ({1: 1.0, 2: 0.99}, 1), ({1: 1.0, 2: 9.0}, 1)]
)
def test_two_threads_must_be_clearly_faster(monkeypatch, times, best):
    monkeypatch.setattr(module, "_trial", times.__getitem__)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1}, raising=False)
    assert fastest() == best


def test_one_core_means_one_thread(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0}, raising=False)
    before = torch.get_num_threads()
    assert fastest() == 1
    assert torch.get_num_threads() == before
