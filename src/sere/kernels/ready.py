"""Make a policy ready for the fused kernels, whichever family it is of."""

from __future__ import annotations

import torch

from sere.kernels.fused import Fused
from sere.kernels.fused_backfill import FusedBackfill
from sere.routing import LayerStatistics, Policy

FusedPolicy = Fused | FusedBackfill
"""One layer under a fused policy: both have the same methods."""


def fuse(
    policy: Policy, statistics: LayerStatistics, num_experts: int, top_k: int, device: torch.device
) -> FusedPolicy | None:
    """Prepare one layer's policy, padding redirected; None if it is not fused.

    Args:
        policy: The layer's policy.
        statistics: What it may know, on the device.
        num_experts: E.
        top_k: K.
        device: Where it will run.

    """
    backfilling = FusedBackfill.of(policy, statistics, num_experts, top_k, device)
    return Fused.of(policy, statistics) if backfilling is None else backfilling
