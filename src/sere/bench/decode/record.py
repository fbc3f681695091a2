"""The record of an offline decode benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sere.artifact import ModelRecord
from sere.bench.decode.config import EngineName
from sere.bench.served.record import Spread
from sere.evaluation.files import write_text
from sere.evaluation.record import LayerExperts, Part
from sere.provenance import Provenance


class Counted(Part):
    """Distinct experts of decoding steps, means per layer and step.

    Attributes:
        before: As the router chose.
        after: As read.
        rerouted: Share of slots that were sent elsewhere, in [0, 1].
        layers: The same of each layer, in model order.

    """

    before: float
    after: float
    rerouted: float
    layers: list[LayerExperts]


class Turn(Part):
    """One variant in one round.

    Attributes:
        variant: ``unmodified``, ``none`` or a policy's short form.
        seconds: Of a decoding step of the whole batch.
        experts: What it read; None for the unmodified model, which is not counted.

    """

    variant: str
    seconds: float
    experts: Counted | None = None


class Round(Part):
    """All variants at one batch size, one after the other, in the order in which they ran.

    Attributes:
        batch_size: B, live sequences.
        number: From 0.
        run: Start of the run that measured it, see :attr:`DecodeRecord.runs`.
        turns: One for each variant.

    """

    batch_size: int
    number: int
    run: str
    turns: list[Turn]


class DecodeResult(Part):
    """A variant at a batch size, over its rounds.

    Attributes:
        variant: As in :class:`Turn`.
        batch_size: B, live sequences.
        rounds: How many.
        tokens_per_second: Of the whole batch.
        step_ms: Of a decoding step, ms.
        ratio: Speed over the unmodified model's in the same round: above 1 is faster.
        experts: Means over the rounds; None for the unmodified model.

    """

    variant: str
    batch_size: int
    rounds: int
    tokens_per_second: Spread
    step_ms: Spread
    ratio: Spread
    experts: Counted | None = None


class DecodeRecord(Part):
    """The whole benchmark.

    Attributes:
        provenance: The run that finished it.
        runs: Every run that measured a part of it, the first one first.
        engine: What decoded.
        model: The model; None if it is not known.
        stand_in: What the model is in words, if its weights are random; else empty.
        artifact: Hash of the artifact, None if none was given.
        metric: Similarity that was served; None for the artifact's default.
        config: The settings.
        environment: Settings of vLLM and of threads in the environment.
        rounds: Everything that was timed.
        results: Batch size by batch size, variants in the order given, the two controls first.

    """

    kind: Literal["sere-bench-decode"] = "sere-bench-decode"
    version: Literal[1] = 1
    provenance: Provenance
    runs: list[Provenance]
    engine: EngineName
    model: ModelRecord | None
    stand_in: str = ""
    artifact: str | None = None
    metric: str | None = None
    config: dict[str, object]
    environment: dict[str, str]
    rounds: list[Round]
    results: list[DecodeResult]

    def save(self, path: str | Path) -> None:
        """Write JSON, whole or not at all; DataError if ``path`` cannot be written."""
        write_text(path, self.model_dump_json(indent=1) + "\n")
