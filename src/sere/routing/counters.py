"""Counters: what a policy did in one layer and step, as one small tensor."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from sere.routing.batch import DECODE, PADDING, PREFILL, RoutingBatch, expert_mask
from sere.routing.policy import Routes

FIELDS: Final = (
    "steps",
    "decode_rows",
    "prefill_rows",
    "slots",
    "rerouted",
    "experts_before",
    "experts_after",
)
"""Names of the counters, in order.

``slots`` are valid slots of rows that are not padding; ``rerouted`` those of them that name
another expert or carry nothing afterwards; ``experts_*`` distinct experts, padding excluded.
"""


def count(batch: RoutingBatch, routes: Routes) -> Tensor:
    """Counters of one step, shape [len(FIELDS)], int64, on the batch's device; nothing waits.

    A step without any row but padding counts as no step.
    """
    valid = batch.valid() & ~batch.rows(PADDING).unsqueeze(1)
    changed = valid & ((routes.ids != batch.ids) | routes.empty)
    before = expert_mask(batch, valid).sum()
    return torch.stack(
        [
            (before > 0).long(),
            batch.rows(DECODE).sum(),
            batch.rows(PREFILL).sum(),
            valid.sum(),
            changed.sum(),
            before,
            routes.active.sum(),
        ]
    )
