"""The record of a served benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from sere.artifact import ModelRecord
from sere.bench.results import Load
from sere.errors import RecordError
from sere.evaluation.files import write_text
from sere.evaluation.record import LayerExperts, Part, reason
from sere.provenance import Provenance

UNMODIFIED, NONE = "unmodified", "none"


class Activity(Part):
    """What the server's own counters say of a load: the proof that it re-routed, or did not.

    Attributes:
        policies: Policies that the workers reported.
        layers: Layers that were re-routed, each with its distinct experts.
        steps: Layer steps with decode rows.
        decode_rows: Decode rows, mean per layer step.
        counted: Decode rows that were counted over those that the answers' tokens took.
        before: Distinct experts of the router's choice, mean per layer step.
        after: Distinct experts that were read.
        rerouted: Share of slots that were sent elsewhere, in [0, 1].

    """

    policies: list[str]
    layers: list[LayerExperts]
    steps: int
    decode_rows: float
    counted: float
    before: float
    after: float
    rerouted: float


class Cell(Part):
    """One load on one server.

    Attributes:
        variant: ``unmodified``, ``none`` or a policy's short form.
        rate: Requests a second that were offered.
        repetition: From 0.
        run: Start of the run that measured it, see :attr:`ServedRecord.runs`.
        load: What the clients saw.
        activity: What the server counted; None for the unmodified one, which has no counters.
        result: The load generator's own file, in the benchmark's folder.
        sha256: Its hash.
        log: The server's log, in the benchmark's folder.
        start_seconds: How long the server took to answer.

    """

    variant: str
    rate: float
    repetition: int
    run: str
    load: Load
    activity: Activity | None = None
    result: str
    sha256: str
    log: str | None = None
    start_seconds: float | None = None


class Spread(Part):
    """Median over repetitions, with the least and the greatest."""

    median: float
    low: float
    high: float


class Summary(Part):
    """A variant at a rate, over its repetitions.

    Attributes:
        variant: As in :class:`Cell`.
        rate: As in :class:`Cell`.
        repetitions: How many.
        failed: Failed requests of all of them.
        requests_per_second: Answered requests over the duration.
        tokens_per_second: Output tokens over the duration.
        goodput: Requests a second that met the objective.
        ttft: Median over requests of the time to the first token, ms.
        ttft_p99: Its 99th percentile.
        tpot: Median over requests of the time per further token, ms.
        tpot_p99: Its 99th percentile.
        itl: Median time between tokens, ms.
        itl_p99: Its 99th percentile.
        decoding: Unmodified ``tpot`` over this one's, repetition by repetition: above 1 is faster.
        first_token: Likewise of ``ttft``.
        throughput: ``tokens_per_second`` over the unmodified one's.
        before: Distinct experts of the router's choice; None where nobody counted.
        after: Distinct experts that were read.
        rerouted: Share of slots that were sent elsewhere.
        decode_rows: Decode rows per layer step.

    """

    variant: str
    rate: float
    repetitions: int
    failed: int
    requests_per_second: Spread
    tokens_per_second: Spread
    goodput: Spread | None = None
    ttft: Spread | None = None
    ttft_p99: Spread | None = None
    tpot: Spread | None = None
    tpot_p99: Spread | None = None
    itl: Spread | None = None
    itl_p99: Spread | None = None
    decoding: Spread | None = None
    first_token: Spread | None = None
    throughput: Spread | None = None
    before: float | None = None
    after: float | None = None
    rerouted: float | None = None
    decode_rows: float | None = None


class ServedRecord(Part):
    """The whole benchmark.

    Attributes:
        provenance: The run that finished it.
        runs: Every run that measured a part of it, the first one first.
        model: The model; None where only result files were read.
        stand_in: What the model is in words, if its weights are random; else empty.
        artifact: Hash of the artifact, None if none was given.
        metric: Similarity that was served; None for the artifact's default.
        config: The settings; empty where only result files were read.
        environment: Settings of vLLM in the environment.
        cells: All loads.
        summaries: Rate by rate, variants in the order given, the two controls first.
        seconds: Time of servers and loads, of all runs.

    """

    kind: Literal["sere-bench-served"] = "sere-bench-served"
    version: Literal[1] = 1
    provenance: Provenance
    runs: list[Provenance]
    model: ModelRecord | None
    stand_in: str = ""
    artifact: str | None = None
    metric: str | None = None
    config: dict[str, object]
    environment: dict[str, str]
    cells: list[Cell]
    summaries: list[Summary]
    seconds: float = 0.0

    def save(self, path: str | Path) -> None:
        """Write JSON, whole or not at all; DataError if ``path`` cannot be written."""
        write_text(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> ServedRecord:
        """Read what :meth:`save` wrote.

        Raises:
            RecordError: If the file is missing, cut short or no such record.

        """
        try:
            return cls.model_validate_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            raise RecordError(
                f"{path} is no record of a served benchmark: {reason(error)}. Make one with sere bench serve."
            ) from error
