"""Row kinds, from what either of vLLM's model runners knows before the forward."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sere.engines.vllm.rows import RowKinds
from sere.engines.vllm.steps import follow
from sere.errors import EngineError
from sere.routing import DECODE, PADDING, PREFILL


def lengths(*values):
    return np.array(values, dtype=np.int32)


def test_rows_past_the_tokens_are_padding_also_after_a_longer_step():
    rows = RowKinds(8, "cpu")
    assert rows.of(8).tolist() == [PADDING] * 8
    rows.fill(lengths(1, 3, 2), np.array([True, False, True]))
    assert rows.of(8).tolist() == [DECODE, PREFILL, PREFILL, PREFILL, DECODE, DECODE, PADDING, PADDING]
    rows.fill(lengths(1), np.array([True]))
    assert rows.of(8).tolist() == [DECODE] + [PADDING] * 7


def test_the_buffer_never_moves():
    rows = RowKinds(8, "cpu")
    address = rows.of(4).data_ptr()
    rows.fill(lengths(2), np.array([True]))
    rows.clear()
    assert rows.of(4).data_ptr() == address
    assert rows.of(4).tolist() == [PADDING] * 4


def test_rows_of_another_step_are_unknown():
    rows = RowKinds(8, "cpu")
    rows.fill(lengths(4), np.array([True]))
    assert rows.of(3) is None
    assert rows.of(9) is None
    assert rows.of(4) is not None


def test_more_tokens_than_promised_leave_everything_unknown():
    rows = RowKinds(4, "cpu")
    rows.fill(lengths(6), np.array([True]))
    assert rows.of(6) is None


@pytest.mark.parametrize(
    ("decode", "expected"), [([True, True], [DECODE] * 3), ([True, False], [PREFILL] * 3)]
)
def test_tokens_shared_out_on_the_device_decode_only_if_all_requests_do(decode, expected):
    rows = RowKinds(8, "cpu")
    rows.fill(lengths(3, 3), np.array(decode), tokens=3)
    assert rows.of(4).tolist() == [*expected, PADDING]


class OldRunner:
    """Has what vLLM's first V1 runner has."""

    def __init__(self, prompt, computed, known):
        self.input_batch = SimpleNamespace(
            num_reqs=len(prompt),
            num_prompt_tokens=np.array([*prompt, 99]),
            num_computed_tokens_cpu=np.array([*computed, 99]),
            num_tokens_no_spec=np.array([*known, 99]),
        )

    def _prepare_inputs(self, scheduler_output, num_scheduled_tokens):
        return "inputs"

    def _dummy_run(self, num_tokens):
        return "dummy"


OLD = {
    "a prompt from the start": (10, 0, 10, 10, PREFILL),
    "a chunk of a prompt": (10, 4, 10, 3, PREFILL),
    "the last token of a prompt found in the prefix cache": (10, 9, 10, 1, PREFILL),
    "the first token decoded": (10, 10, 11, 1, DECODE),
    "a later token": (10, 30, 31, 1, DECODE),
    "a token not known yet, scheduled ahead": (10, 31, 31, 1, DECODE),
    "drafts to verify": (10, 30, 31, 4, DECODE),
    "a preempted request that starts again": (10, 0, 25, 25, PREFILL),
    "the rest of its own output, recomputed": (10, 16, 25, 9, PREFILL),
}


@pytest.mark.parametrize("case", OLD)
def test_the_old_runner_says_whether(case):
    prompt, computed, known, scheduled, kind = OLD[case]
    rows = RowKinds(32, "cpu")
    runner = OldRunner([prompt, 5], [computed, 8], [known, 9])
    assert follow(runner, rows) == "V1"
    assert runner._prepare_inputs(None, lengths(scheduled, 1)) == "inputs"
    assert rows.of(scheduled + 2).tolist() == [kind] * scheduled + [DECODE, PADDING]
    assert runner._dummy_run(4) == "dummy"
    assert rows.of(32).tolist() == [PADDING] * 32


class NewRunner:
    """Has what vLLM's second runner has."""

    req_states = None

    def prepare_inputs(self, *_, **__):
        return SimpleNamespace(
            num_reqs=2,
            num_scheduled_tokens=lengths(1, 3),
            is_prefilling_np=np.array([False, True]),
            num_tokens=4,
        )

    def _dummy_run(self, num_tokens):
        return "dummy"


def test_the_new_runner_says_which_requests_prefill():
    rows = RowKinds(8, "cpu")
    runner = NewRunner()
    assert follow(runner, rows) == "V2"
    runner.prepare_inputs("scheduled", num_active_loras=0)
    assert rows.of(5).tolist() == [DECODE, PREFILL, PREFILL, PREFILL, PADDING]


def test_an_unknown_runner_is_refused():
    with pytest.raises(EngineError, match="no model runner that sere knows"):
        follow(object(), RowKinds(1, "cpu"))


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU: checks that filling never waits for it"
)
def test_filling_on_a_gpu_waits_for_nothing():
    rows = RowKinds(64, "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(9):
            rows.fill(lengths(1, step + 1), np.array([True, False]))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert rows.of(12).tolist() == [DECODE, *[PREFILL] * 9, PADDING, PADDING]
