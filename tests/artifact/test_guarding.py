"""Which steps a cost model leaves as routed."""

from __future__ import annotations

import pytest

from sere.artifact import CostModel, Place, PolicyCost, StepSize, named_policy
from sere.artifact.guarding import guard_of, predicted_guard
from sere.errors import PolicyError
from sere.routing import NEVER, Guard, parse_policy
from tests.artifact.made import artifact

HERE = Place("a processor", "float32")


def cost(*sizes: tuple[int, float, float], policy: str = "sere:top_s=1") -> CostModel:
    """One expert is a millisecond; sizes are rows, experts saved and milliseconds of overhead."""
    steps = tuple(
        StepSize(rows=rows, before=saved + 8, after=8, overhead=over * 1e-3) for rows, saved, over in sizes
    )
    return CostModel(
        device=HERE.device,
        dtype=HERE.dtype,
        expert_bytes=1_000_000,
        fixed=1e-3,
        byte=1e-9,
        row=1e-3,
        error=0.0,
        rows=(sizes[0][0], sizes[-1][0]),
        policies=(PolicyCost(policy=policy, sizes=steps),),
    )


@pytest.mark.parametrize(
    ("sizes", "guard"),
    [
        # Pays nowhere; pays everywhere, at no cost of its own.
        ([(1, 0, 1), (16, 1, 2)], Guard(NEVER)),
        ([(1, 1, 0), (16, 9, 0)], Guard(1)),
        # Saves 0 at 1 row and 15 at 16, so rows - 1; the overhead is 4.5: from 6 rows on, until it has grown.
        ([(1, 0, 4.5), (16, 15, 4.5)], Guard(6, 53)),
        # Equal is not enough: at 5 rows 4 are saved and 4 spent.
        ([(1, 0, 4), (16, 15, 4)], Guard(6, 59)),
        # Pays up to 10 rows and no more: 9 at 1 row, 0 at 10.
        ([(1, 9, 0.5), (10, 0, 0.5)], Guard(1, 9)),
        # Pays at both ends and not between: saved is 6, 2, 6 and the overhead 3.
        ([(1, 6, 3), (5, 2, 3), (9, 6, 3)], Guard(1, 17, ((4, 6),))),
    ],
)
def test_steps_whose_saving_is_not_above_the_overhead_stay_as_routed(sizes, guard):
    model = cost(*sizes)
    assert guard_of(model, model.policies[0]) == guard


def test_the_guard_agrees_with_the_prediction_at_every_number_of_rows():
    from sere.artifact.cost import saving

    model = cost((1, 3, 1), (4, 0, 1), (16, 6, 2), (32, 1, 3), (64, 40, 3))
    policy = model.policies[0]
    guard = guard_of(model, policy)
    assert len(guard.gaps) == 2
    for rows in range(1, 2000):
        assert guard.passes(rows) == (saving(model, policy, rows) > 0), rows


def test_a_guard_is_of_one_policy_on_one_device():
    costs = [cost((1, 0, 4.5), (16, 15, 4.5))]
    policy = parse_policy("sere:top_s=1")
    assert predicted_guard(costs, policy, None, HERE) == Guard(6, 53)
    assert predicted_guard(costs, policy, None, Place("a processor", "bfloat16")) is None
    assert predicted_guard(costs, policy, None, Place("a GPU", "float32")) is None
    assert predicted_guard(costs, policy, "cosine", HERE) is None
    assert predicted_guard(costs, parse_policy("sere:top_s=2"), None, HERE) is None


def test_auto_takes_the_devices_measurement_and_says_what_to_do_without():
    made = artifact().with_cost(cost((1, 0, 4.5), (16, 15, 4.5)))
    named = named_policy("sere:top_s=1", made)
    assert named.guarded_by("auto", made, HERE) == Guard(6, 53)
    with pytest.raises(PolicyError, match=r"on a GPU in float32.*sere profile MODEL ARTIFACT"):
        named.guarded_by("auto", made, Place("a GPU", "float32"))
    with pytest.raises(PolicyError, match="'sere:top_s=2' has none"):
        named_policy("sere:top_s=2", made).guarded_by("auto", made, HERE)


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        (Guard(NEVER), "all steps stay as routed: re-routing would cost more than it saves"),
        (
            Guard(2, 9, ((4, 4), (6, 7))),
            "steps of fewer than 2 or more than 9 rows stay as routed, and so do those of 4, 6 to 7",
        ),
    ],
)
def test_a_guard_says_what_it_keeps(guard, words):
    assert str(guard) == words
