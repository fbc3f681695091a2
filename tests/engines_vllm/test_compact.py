"""Slots of weight zero are skipped on the CPU, and only where a policy may have made them."""

from __future__ import annotations

import pytest
import torch

from sere.engines.vllm import compact, remote
from tests.engines_vllm.test_rerouting import layer, worker

EXPERTS, WIDTH, INNER, ROWS, SLOTS = 8, 64, 32, 6, 4


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def arguments(request):
    """Arguments of vLLM's kernel up to the weights, for a small layer."""
    pytest.importorskip("vllm")
    from vllm import _custom_ops as ops

    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(request.param) / 8

    w13, w2 = draw(EXPERTS, 2 * INNER, WIDTH), draw(EXPERTS, WIDTH, INNER)
    packed = (ops.cpu_prepack_moe_weight(w13, "vec"), ops.cpu_prepack_moe_weight(w2, "vec"))
    return (8 * draw(ROWS, WIDTH), *packed, None, None)


def run(function, arguments, weights):
    generator = torch.Generator().manual_seed(1)
    ids = torch.rand(ROWS, EXPERTS, generator=generator).argsort(1)[:, :SLOTS].int()
    out = torch.full((ROWS, WIDTH), float("nan"), dtype=arguments[0].dtype)
    function(out, *arguments, weights, ids, False, "silu", "vec")
    return out


def weights(zeros):
    """Weights of which the first ``zeros`` slots of every row are zero."""
    drawn = torch.rand(ROWS, SLOTS, generator=torch.Generator().manual_seed(2)) + 0.1
    drawn[:, :zeros] = 0
    return drawn


@pytest.mark.vllm
@pytest.mark.parametrize("zeros", [1, 3])
def test_skipping_slots_gives_what_computing_them_gives(arguments, zeros):
    expected = run(torch.ops._C.cpu_fused_moe, arguments, weights(zeros))
    got = run(compact.fused_moe, arguments, weights(zeros))
    tolerance = 1e-5 if got.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
    assert expected.abs().max() > 0.01


@pytest.mark.vllm
def test_without_slots_to_skip_the_call_is_vllms_own(arguments):
    expected = run(torch.ops._C.cpu_fused_moe, arguments, weights(0))
    assert torch.equal(run(compact.fused_moe, arguments, weights(0)), expected)


@pytest.mark.vllm
def test_rows_without_any_slot_become_zero(arguments):
    assert torch.equal(
        run(compact.fused_moe, arguments, weights(SLOTS)), torch.zeros(ROWS, WIDTH).to(arguments[0])
    )


def test_a_policy_that_changes_nothing_leaves_the_kernel_alone():
    assert layer("sere:top_s=1,merge=true").changes
    assert not layer("none").changes
    assert not layer("sere:top_s=2").changes  # of two slots
    served, one = worker()
    remote.switch(served, "off")
    assert not one.changes
