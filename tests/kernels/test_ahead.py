"""Every kernel compiles for every GPU without one: no spills, no local memory, little code."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="needs Triton: pip install triton")

from sere.kernels import gpu_backfill, gpu_large, gpu_reroute
from tests.kernels.ahead import TARGETS, compiled

KERNELS = {
    "reroute": (gpu_reroute.reroute_kernel, 64, 8, 128),
    "shares": (gpu_large.shares_kernel, 512, 8, 256),
    "rewrite": (gpu_large.rewrite_kernel, 512, 8, 256),
    "backfill": (gpu_backfill.backfill_kernel, 64, 8, 128),
    "backfill of 512 experts, top-16": (gpu_backfill.backfill_kernel, 64, 16, 512),
    "reroute of 512 experts, top-16": (gpu_reroute.reroute_kernel, 64, 16, 512),
}
MOST_CODE = 64 * 1024
"""Bytes. A kernel that tiled E x E in one block became a megabyte."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_compiles_ahead_of_time_without_spilling(name, target):
    cost = compiled(KERNELS[name][0], target, *KERNELS[name][1:])
    print(f"{name} for {target}: {cost}")
    assert cost.memory == 0
    assert cost.registers <= 168
    assert cost.shared <= 48 * 1024
    assert 0 < cost.code <= MOST_CODE
