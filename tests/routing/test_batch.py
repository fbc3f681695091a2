"""What a routing batch accepts."""

from __future__ import annotations

import pytest
import torch

from sere.errors import RoutingError
from sere.routing import RoutingBatch


@pytest.mark.parametrize(
    ("ids", "weights", "kinds", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), torch.zeros(3), None, "rows, slots"),
        (torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, 3), None, "rows, slots"),
        (torch.zeros(3, 2, dtype=torch.int16), torch.zeros(3, 2), None, "int32 or int64"),
        (torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, 2, dtype=torch.int64), None, "floating"),
        (torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, 2), torch.zeros(2), "one entry a row"),
    ],
)
def test_malformed_batches_are_refused(ids, weights, kinds, message):
    with pytest.raises(RoutingError, match=message):
        RoutingBatch(ids, weights, 4, kinds)


def test_a_layer_without_experts_is_refused():
    with pytest.raises(RoutingError, match="num_experts"):
        RoutingBatch(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1), 0)
