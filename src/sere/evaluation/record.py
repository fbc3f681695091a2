"""The record of a comparison: everything that a table or a picture is later drawn from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sere.artifact import ModelRecord
from sere.errors import DataError
from sere.evaluation.files import write_text
from sere.evaluation.provenance import Provenance

Interval = tuple[float, float]
"""95% interval, lower and upper end; see :mod:`sere.evaluation.intervals` for what it leaves out."""


class Part(BaseModel):
    """Base of all records: JSON has no NaN and no infinity, so they are written as text and read back."""

    model_config = ConfigDict(ser_json_inf_nan="strings")


class LayerExperts(Part):
    """Distinct experts of one layer, means per decoding step.

    Attributes:
        name: Module path of the experts module.
        before: As the router chose.
        after: As read.

    """

    name: str
    before: float
    after: float


class ExpertsRecord(Part):
    """Distinct experts, means per layer and decoding step.

    Attributes:
        before: As the router chose.
        after: As read.
        of: E, experts of a layer; the largest where layers differ.
        rerouted: Share of slots that the policy changed, in [0, 1].
        layers: The same of each layer, in model order; empty in records of versions that kept none.

    """

    before: float
    after: float
    of: int
    rerouted: float
    layers: list[LayerExperts] = []


class FidelityRecord(Part):
    """Nearness to the unmodified model on held-out text.

    Attributes:
        sequences: Sequences scored.
        tokens: Tokens scored in all.
        kl: KL(unmodified || re-routed), nats per token.
        kl_interval: Bootstrap over sequences; both ends are the mean if there is only one.
        top1_agreement: Share of tokens with the same first choice.
        perplexity: Of the re-routed model.
        reference_perplexity: Of the unmodified model.
        perplexity_change: Relative change; 0.1 is ten per cent worse.

    """

    sequences: int
    tokens: int
    kl: float
    kl_interval: Interval
    top1_agreement: float
    perplexity: float
    reference_perplexity: float
    perplexity_change: float


class TasksRecord(Part):
    """Exact match by greedy decoding.

    Attributes:
        examples: Prompts decoded.
        exact_match: Share answered rightly.
        interval: Wilson's score interval over examples.
        by_task: The share of each task.
        mean_live: Mean live sequences of a step: the batch size, less where the batch ran empty.

    """

    examples: int
    exact_match: float
    interval: Interval
    by_task: dict[str, float]
    mean_live: float


class SpeedRecord(Part):
    """Decode speed, measured in turns with all other policies of the same batch size.

    Attributes:
        tokens_per_second: Of the whole batch, median over rounds.
        ratio: Relative to the unmodified model, median over rounds.
        ratio_low: Least ratio of a round.
        ratio_high: Greatest ratio of a round.
        rounds: Rounds, each over the whole text of one batch.

    """

    tokens_per_second: float
    ratio: float
    ratio_low: float
    ratio_high: float
    rounds: int


class CompanyRecord(Part):
    """How much a sequence's predictions change when its neighbours in the batch are others.

    Attributes:
        sequences: Sequences seen in two companies.
        tokens: Tokens compared.
        kl: Mean of the KL in both directions between the two predictions, nats per token.
        kl_interval: Bootstrap over sequences.
        top1: Share of tokens with the same first choice in both companies.

    """

    sequences: int
    tokens: int
    kl: float
    kl_interval: Interval
    top1: float


class PolicyResult(Part):
    """One policy at one batch size.

    Attributes:
        policy: Its short form; ``unmodified`` for the model without any hook.
        batch_size: B, live sequences.
        experts: Of the fidelity run; for the unmodified model, what the control ``none`` counted.
        fidelity: Nearness to the unmodified model.
        tasks: Exact match, None if there were no tasks.
        speed: Decode speed, None if it was not asked for.
        company: Effect of the neighbours; None at batch 1, and where the texts do not give two batches.

    """

    policy: str
    batch_size: int
    experts: ExpertsRecord
    fidelity: FidelityRecord
    tasks: TasksRecord | None = None
    speed: SpeedRecord | None = None
    company: CompanyRecord | None = None


class ComparisonRecord(Part):
    """A whole comparison.

    Attributes:
        kind: Always ``sere-comparison``.
        version: Version of this form.
        provenance: The run.
        model: The model.
        artifact: Hash of the artifact, None if none was given.
        metric: Similarity metric that was served; None for the artifact's default.
        texts_sha256: Hash of the held-out texts, in order.
        config: The settings, defaults included.
        results: Batch size by batch size, policies in the order given, the two controls first.
        seconds: Duration of the run.

    """

    kind: Literal["sere-comparison"] = "sere-comparison"
    version: Literal[1] = 1
    provenance: Provenance
    model: ModelRecord
    artifact: str | None
    metric: str | None
    texts_sha256: str
    config: dict[str, object]
    results: list[PolicyResult]
    seconds: float

    def result(self, policy: str, batch_size: int) -> PolicyResult:
        """Return the result of ``policy`` at ``batch_size``.

        Raises:
            DataError: If there is none.

        """
        for result in self.results:
            if (result.policy, result.batch_size) == (policy, batch_size):
                return result
        known = ", ".join(dict.fromkeys(f"{r.policy} at {r.batch_size}" for r in self.results))
        raise DataError(f"the record has no {policy!r} at batch size {batch_size}. It has: {known}.")

    def save(self, path: str | Path) -> None:
        """Write JSON, whole or not at all.

        Raises:
            DataError: If ``path`` cannot be written.

        """
        write_text(path, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> ComparisonRecord:
        """Read what :meth:`save` wrote.

        Raises:
            DataError: If the file is missing or is no such record.

        """
        try:
            return cls.model_validate_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path} is no comparison record: {reason(error)}. Make one with sere compare."
            ) from error


def reason(error: OSError | ValidationError | UnicodeDecodeError) -> str:
    """Say in one line what is wrong with a file."""
    if isinstance(error, OSError):
        return error.strerror or "it cannot be read"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text"
    faults = error.errors(include_url=False)
    place = ".".join(map(str, faults[0]["loc"]))
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{place + ': ' if place else ''}{faults[0]['msg']}{more}"
