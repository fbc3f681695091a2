"""The table that is prepared at load."""

from __future__ import annotations

import pytest
import torch

from sere.errors import PolicyError, RoutingError
from sere.kernels import LayerTable, Options, obstacle
from sere.routing import LayerStatistics, make_policy


def test_substitutes_come_in_falling_similarity_ties_to_the_lowest_id_cut_at_the_threshold():
    similarity = torch.tensor(
        [[1.0, 0.5, 0.9, 0.5], [0.5, 1.0, 0.4, 0.3], [0.9, 0.4, 1.0, 0.9], [0.5, 0.3, 0.9, 1.0]]
    )
    free = LayerTable.prepare(LayerStatistics(similarity), 0.0)
    assert free.order[:, :4].tolist() == [[2, 1, 3, 0], [0, 2, 3, 1], [0, 3, 1, 2], [2, 0, 1, 3]]
    cut = LayerTable.prepare(LayerStatistics(similarity), 0.5)
    assert cut.order[:, :4].tolist() == [[2, 1, 3, 0], [0, 1, 1, 1], [0, 3, 2, 2], [2, 0, 3, 3]]
    assert cut.order.shape == (4, 32)
    assert (cut.order[:, 4:] == torch.arange(4).unsqueeze(1)).all()


def test_a_threshold_is_compared_in_float32():
    similarity = torch.full((3, 3), 0.3)
    assert LayerTable.prepare(LayerStatistics(similarity), 0.3).order[0, :3].tolist() == [1, 2, 0]


@pytest.mark.parametrize("similarity", [None, torch.zeros(3, 4), torch.full((3, 3), float("nan"))])
def test_a_similarity_that_cannot_be_is_refused(similarity):
    with pytest.raises(RoutingError, match="alibrate"):
        LayerTable.prepare(LayerStatistics(similarity), 0.0)


def test_options_are_those_of_the_policy():
    policy = make_policy("sere", top_s=3, threshold=0.25, floor=5, phase="all", merge=True)
    assert Options.of(policy) == Options(3, 0.25, 5, True, True, True)
    assert obstacle(policy) is None


def test_other_policies_are_refused_with_the_reason():
    with pytest.raises(PolicyError, match="not PerRow"):
        Options.of(make_policy("top_k", k=2))


def test_a_setting_that_can_change_nothing_becomes_one_that_copies():
    assert Options(8, merge=True).resolved(8) == (8, 0, False, False)
    assert Options(1, threshold=1.01, merge=True).resolved(8) == (8, 0, False, False)
    assert Options(1, merge=True).resolved(8) == (1, 8, True, True)
