"""Tables of a profile, as words."""

from __future__ import annotations

from sere.artifact.cost import CostModel, predicted, saving
from sere.evaluation.sweep.grid import Grid
from sere.profiling.record import ProfileRecord

MILLI = 1e3
NOTE = (
    "Experts: distinct per layer and step, unmodified to re-routed. Overhead: what the policy itself takes. "
    "Saves: what reading fewer experts saves, less the overhead; where that is negative, the policy "
    "does not pay."
)


def steps(record: ProfileRecord) -> Grid:
    """Measured steps beside what the fitted model says of them."""
    cost = record.cost
    rows = tuple(
        (
            str(step.rows),
            str(step.experts),
            f"{step.seconds * MILLI:.2f}",
            f"{step.low * MILLI:.2f} to {step.high * MILLI:.2f}",
            f"{step.predicted * MILLI:.2f}",
            f"{step.predicted / step.seconds - 1:+.0%}",
        )
        for step in record.steps
    )
    headings = ("rows", "experts", "ms", "quartiles", "fitted", "off by")
    return Grid(f"Decoding steps on {_place(cost)}", headings, rows, _fitted(cost))


def predictions(record: ProfileRecord) -> Grid:
    """Say what every policy is expected to do, by the size of the step."""
    rows = tuple(
        (
            policy.policy,
            str(size.rows),
            f"{size.before:.1f} to {size.after:.1f}",
            f"{size.overhead * MILLI:.2f}",
            f"{saving(record.cost, policy, size.rows) * MILLI:+.2f}",
            f"{predicted(record.cost, policy, size.rows):.2f}x",
        )
        for policy in record.cost.policies
        for size in policy.sizes
    )
    headings = ("policy", "rows", "experts", "overhead\nms", "saves\nms", "speed-up")
    return Grid("Predicted", headings, rows, NOTE)


def _place(cost: CostModel) -> str:
    threads = "" if cost.threads is None else f", {cost.threads} thread{'s' * (cost.threads > 1)}"
    return f"{cost.device}, {cost.dtype}{threads}"


def _fitted(cost: CostModel) -> str:
    rate = f", {1e-9 / cost.byte:.1f} GB/s" if cost.byte else ""
    return (
        f"Fitted: {cost.fixed * MILLI:.2f} ms + {cost.expert * MILLI:.3f} ms for each distinct expert in "
        f"every layer ({cost.expert_bytes / 1e6:.1f} MB{rate}) + {cost.row * MILLI:.3f} ms a row. Half of "
        f"the steps are within {cost.error:.0%}."
    )
