"""What one load gave, whichever tool drove it."""

from __future__ import annotations

from typing import Literal

from sere.evaluation.record import Part

Tool = Literal["vllm", "guidellm", "aiperf"]


class Latency(Part):
    """A time over the requests of a load, in milliseconds.

    Attributes:
        mean: Mean.
        median: Median.
        p99: 99th percentile, None where the tool gives none.

    """

    mean: float
    median: float
    p99: float | None = None


class Load(Part):
    """What the clients of one load saw.

    Attributes:
        tool: Who drove the load.
        rate: Requests per second that were offered; infinite where all came at once; None if not known.
        completed: Requests answered.
        failed: Requests not answered, or not fully.
        seconds: Duration.
        requests_per_second: Answered requests over the duration.
        tokens_per_second: Output tokens over the duration.
        goodput: Requests a second that met the objective; None without one.
        input_tokens: Prompt tokens of answered requests, None if not known.
        output_tokens: Tokens of the answers, None if not known.
        ttft: Time to the first token.
        tpot: A request's time after its first token, divided by its further tokens.
        itl: Time between two tokens, over all pairs; None where the tool gives only means of requests.
        e2el: Time of a whole request.
        concurrent: Most requests at a time, None if not known.

    """

    tool: Tool
    rate: float | None
    completed: int
    failed: int
    seconds: float
    requests_per_second: float
    tokens_per_second: float
    goodput: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    ttft: Latency | None = None
    tpot: Latency | None = None
    itl: Latency | None = None
    e2el: Latency | None = None
    concurrent: float | None = None
