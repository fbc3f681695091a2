"""What a decoding step costs on one device, and what reading fewer experts saves there."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sere.errors import ArtifactError, did_you_mean
from sere.routing import Policy, parse_policy

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rows = Annotated[int, Field(ge=1)]


class Part(BaseModel):
    """Base: immutable, nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Place:
    """What decides how long a step takes, besides the model.

    Attributes:
        device: Name of the GPU or of the processor.
        dtype: Floating type of the weights, ``float32``.

    """

    device: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.device} in {self.dtype}"


class StepSize(Part):
    """What is expected of one policy in steps of one size.

    Attributes:
        rows: Rows of the step.
        before: Distinct experts per MoE layer that the router names, the mean over layers and steps.
        after: Those that are read under the policy.
        overhead: Seconds that the policy itself takes in a step, all layers together.

    """

    rows: Rows
    before: NonNegative
    after: NonNegative
    overhead: NonNegative


class PolicyCost(Part):
    """What is expected of one policy, by the size of the step.

    Attributes:
        policy: Short form.
        metric: Similarity that was served; None means the artifact's default.
        sizes: Measured sizes, by rising rows; at least one.

    """

    policy: str
    metric: str | None = None
    sizes: Annotated[tuple[StepSize, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _rising(self) -> PolicyCost:
        if any(low.rows >= high.rows for low, high in pairwise(self.sizes)):
            raise ValueError("sizes must have rising rows")
        return self

    def at(self, rows: int) -> StepSize:
        """Return the expectation at any size.

        Between two measured sizes everything is linear in the rows. Below the smallest one, its own
        figures hold; above the largest, its experts do, while the overhead grows with the rows.
        """
        sizes = self.sizes
        place = bisect_left([size.rows for size in sizes], rows)
        if place == len(sizes):
            last = sizes[-1]
            return last.model_copy(update={"rows": rows, "overhead": last.overhead * rows / last.rows})
        high = sizes[place]
        if place == 0 or high.rows == rows:
            return high.model_copy(update={"rows": rows})
        low = sizes[place - 1]
        share = (rows - low.rows) / (high.rows - low.rows)
        values = {
            name: (1 - share) * getattr(low, name) + share * getattr(high, name)
            for name in ("before", "after", "overhead")
        }
        return StepSize(rows=rows, **values)


class CostModel(Part):
    """Step time = fixed + byte x expert_bytes x distinct experts + row x rows + the policy's overhead.

    Attributes:
        engine: Engine that was measured.
        device: Name of the GPU or of the processor.
        dtype: Floating type of the weights.
        threads: CPU threads; None where the model does not run on the CPU.
        expert_bytes: Bytes of one expert's weights, summed over the MoE layers: what a step reads more
            with one more distinct expert in every layer.
        fixed: Seconds of a step, whatever is in it.
        byte: Seconds for each byte of experts read.
        row: Seconds for each row.
        error: Median over the measured steps of ``|predicted / measured - 1|``.
        rows: Least and most rows that were measured.
        policies: What is expected of each policy.

    """

    engine: Literal["transformers"] = "transformers"
    device: str
    dtype: str
    threads: Annotated[int, Field(ge=1)] | None = None
    expert_bytes: Annotated[int, Field(ge=1)]
    fixed: NonNegative
    byte: NonNegative
    row: NonNegative
    error: NonNegative
    rows: tuple[Rows, Rows]
    policies: tuple[PolicyCost, ...] = ()

    @property
    def place(self) -> Place:
        """Where it holds: an artifact keeps one cost model for each place."""
        return Place(self.device, self.dtype)

    @property
    def expert(self) -> float:
        """Seconds for each distinct expert more in every MoE layer."""
        return self.byte * self.expert_bytes

    def find(self, policy: Policy, metric: str | None = None) -> PolicyCost | None:
        """Return what is expected of a policy, however it was written; None if it was not measured."""
        for known in self.policies:
            if known.metric == metric and parse_policy(known.policy) == policy:
                return known
        return None

    def of(self, policy: Policy | str, metric: str | None = None) -> PolicyCost:
        """Return what is expected of a policy; two ways to write one policy are the same.

        Raises:
            ArtifactError: If it was not measured.
            PolicyError: If it is malformed.

        """
        found = self.find(parse_policy(policy) if isinstance(policy, str) else policy, metric)
        if found is not None:
            return found
        name = policy if isinstance(policy, str) else policy.name
        choices = did_you_mean(name, [known.policy for known in self.policies])
        raise ArtifactError(
            f"the cost model of {self.device} has no measurement of {name!r}.{choices} Or run 'sere profile "
            "MODEL ARTIFACT --policy POLICY --write'."
        )


def predict_seconds(cost: CostModel, rows: float, experts: float, overhead: float = 0.0) -> float:
    """Seconds of a decoding step.

    Args:
        cost: The device's cost model.
        rows: Rows of the step.
        experts: Distinct experts read per MoE layer.
        overhead: Seconds that the policy itself takes in the step.

    """
    return cost.fixed + cost.expert * experts + cost.row * rows + overhead


def predict_speedup(
    cost: CostModel, rows: float, experts_before: float, experts_after: float, overhead: float = 0.0
) -> float:
    """Time of the unmodified step over the time of the re-routed one.

    Args:
        cost: The device's cost model.
        rows: Rows of the step.
        experts_before: Distinct experts per MoE layer of the unmodified step.
        experts_after: Those of the re-routed step.
        overhead: Seconds that the policy itself takes in the step.

    Raises:
        ArtifactError: If the model predicts that the re-routed step takes no time, so that nothing can
            be said.

    """
    after = predict_seconds(cost, rows, experts_after, overhead)
    if after <= 0:
        raise ArtifactError(
            f"the cost model of {cost.device} predicts a step of no time. Measure anew with 'sere profile'."
        )
    return predict_seconds(cost, rows, experts_before) / after


def predicted(cost: CostModel, policy: PolicyCost, rows: int) -> float:
    """Speed-up of ``policy`` in steps of ``rows`` rows, its overhead included."""
    size = policy.at(rows)
    return predict_speedup(cost, rows, size.before, size.after, size.overhead)


def saving(cost: CostModel, policy: PolicyCost, rows: int) -> float:
    """Seconds that ``policy`` saves in a step of ``rows`` rows, less its overhead; negative for a loss."""
    size = policy.at(rows)
    return cost.expert * (size.before - size.after) - size.overhead
