"""The record of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from sere.artifact import ModelRecord
from sere.errors import RecordError
from sere.evaluation.files import write_text
from sere.evaluation.record import ExpertsRecord, Interval, Part, reason
from sere.provenance import Provenance


class Paired(Part):
    """A policy beside the unmodified model on the same examples.

    Attributes:
        examples: How many.
        reference: Mean score of the unmodified model.
        value: Mean score under the policy.
        difference: ``value - reference``.
        difference_interval: Bootstrap over examples, each drawn with both its scores.
        retained: ``value / reference``; None where the unmodified model scored 0.
        retained_interval: Likewise.
        lost: Examples that the unmodified model solved and the policy did not; None where scores are not
            0 or 1, as for the next two.
        gained: The other way round.
        p_value: McNemar's exact test, two-sided: how likely a split of ``lost`` and ``gained`` at least so
            uneven is, if the policy makes no difference.

    """

    examples: int
    reference: float
    value: float
    difference: float
    difference_interval: Interval
    retained: float | None
    retained_interval: Interval | None
    lost: int | None = None
    gained: int | None = None
    p_value: float | None = None


class TaskResult(Part):
    """One task under one policy.

    Attributes:
        task: The harness's name.
        part: What the user named that it belongs to.
        policy: Short form; ``unmodified`` for the model without any hook.
        batch_size: B, live sequences.
        run: Start of the run that measured it, see :attr:`EvalRecord.runs`.
        output_type: The harness's word for how it asks.
        examples: Examples.
        metric: Metric and filter that the next four are of.
        value: Mean over examples, or as the harness aggregates.
        interval: Wilson's for scores of 0 and 1, else a bootstrap over examples; both ends are the value
            where there are no scores by example.
        paired: Beside the unmodified model; None for itself, and where there are no scores by example.
        same: Share of examples with the unmodified model's very answer.
        metrics: All metrics of the harness.
        sequences: Sequences that were decoded.
        steps: Decoding steps.
        mean_live: Mean live sequences of a step; below B where the batch ran empty. As for steps and
            sequences, 0 where results of another engine were read.
        cut: Prompts that were too long and lost their beginning.
        experts: Distinct experts of the decoding steps; None for the unmodified model, where nothing counts.
        seconds: Duration.

    """

    task: str
    part: str
    policy: str
    batch_size: int
    run: str
    output_type: str
    examples: int
    metric: str
    value: float
    interval: Interval
    paired: Paired | None = None
    same: float | None = None
    metrics: dict[str, float]
    sequences: int
    steps: int
    mean_live: float
    cut: int = 0
    experts: ExpertsRecord | None = None
    seconds: float


class Average(Part):
    """The mean over what the user named, each with the same weight, as the paper's tables have it.

    Attributes:
        policy: As in :class:`TaskResult`.
        batch_size: As in :class:`TaskResult`.
        parts: Name to mean score over its examples.
        value: Mean of ``parts``.
        paired: Beside the unmodified model; examples are drawn again part by part.
        experts: Distinct experts, mean over all steps; None where nothing counted.
        before: Those of the router's choice.

    """

    policy: str
    batch_size: int
    parts: dict[str, float]
    value: float
    paired: Paired | None = None
    experts: float | None = None
    before: float | None = None


class ReadFile(Part):
    """A results file of the harness that was read, not made.

    Attributes:
        policy: What the user said it is of.
        file: Its name.
        sha256: Its hash.
        config: What the harness says of the model and the run.
        versions: Versions that the harness says.

    """

    policy: str
    file: str
    sha256: str
    config: dict[str, object]
    versions: dict[str, str]


class EvalRecord(Part):
    """The whole evaluation.

    Attributes:
        provenance: The run that finished it.
        runs: Every run that measured a part of it, the first one first.
        model: The model.
        artifact: Hash of the artifact, None if none was given.
        metric: Similarity that was served; None for the artifact's default.
        engine: What ran the model: ``transformers``, or the harness's word for what it was.
        config: The settings, defaults included.
        results: Batch size by batch size, task by task, policies in the order given.
        averages: One for each batch size and policy; empty if a task has no scores by example.
        measured: Results that were measured in this run; the others were there already.
        seconds: Time of all results.
        read: The harness's files that all this comes from; empty if it was measured here.

    """

    kind: Literal["sere-eval"] = "sere-eval"
    version: Literal[1] = 1
    provenance: Provenance
    runs: list[Provenance]
    model: ModelRecord
    artifact: str | None
    metric: str | None = None
    engine: str = "transformers"
    config: dict[str, object]
    results: list[TaskResult]
    averages: list[Average]
    measured: int
    seconds: float
    read: list[ReadFile] = Field(default_factory=list)

    def at(self, batch_size: int, policy: str | None = None) -> Iterator[TaskResult]:
        """Yield the results of one batch size, of one policy or of all."""
        for result in self.results:
            if result.batch_size == batch_size and policy in (None, result.policy):
                yield result

    @property
    def batch_sizes(self) -> list[int]:
        """Batch sizes, in order."""
        return list(dict.fromkeys(result.batch_size for result in self.results))

    @property
    def policies(self) -> list[str]:
        """Policies, in order, the unmodified model first."""
        return list(dict.fromkeys(result.policy for result in self.results))

    def save(self, path: str | Path) -> None:
        """Write JSON, whole or not at all; DataError if ``path`` cannot be written."""
        write_text(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> EvalRecord:
        """Read what :meth:`save` wrote.

        Raises:
            RecordError: If the file is missing, cut short or no such record.

        """
        try:
            return cls.model_validate_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            raise RecordError(
                f"{path} is no record of an evaluation: {reason(error)}. Make one with sere eval."
            ) from error
