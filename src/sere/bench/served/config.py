"""Settings of a served benchmark, and the presets."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sere.errors import DataError, did_you_mean

OBJECTIVES: Final = ("ttft", "tpot", "e2el")
"""What an objective may bound, in milliseconds of a request."""
PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "paper": {"rates": (8.0, 16.0, 24.0, 32.0), "input_tokens": 128, "output_tokens": 32},
}
"""``paper``: SERE (arXiv 2602.07616), 128 tokens in, 32 out, 8 to 32 requests a second."""


@dataclass(frozen=True)
class ServedConfig:
    """How a server is loaded.

    Attributes:
        rates: Requests a second, with Poisson arrivals; infinite sends all at once.
        repetitions: How often everything is repeated, each time on a fresh server.
        input_tokens: Tokens of a prompt; prompts are random.
        output_tokens: Tokens of an answer; the end of a text is ignored.
        seconds: Length of a load: its requests are rate x seconds.
        requests: Requests of a load, in place of ``seconds``; infinite rates need it.
        objective: Bounds in milliseconds of ``ttft``, ``tpot`` or ``e2el``; a request that meets them all
            counts towards goodput. Empty for none.
        warmup: Requests sent at once to a fresh server, and not measured.
        temperature: Of sampling; at 0 random prompts run into loops whose rows share their experts.
        seed: Seed of prompts and arrivals; every variant gets the same ones.
        server: Further options of ``vllm serve``, for all variants alike.
        load: Further options of ``vllm bench serve``.
        start_seconds: How long a server may take to start.

    Raises:
        DataError: If a value is out of range.

    """

    rates: tuple[float, ...] = (1.0, 4.0, 16.0)
    repetitions: int = 3
    input_tokens: int = 128
    output_tokens: int = 128
    seconds: float = 60.0
    requests: int | None = None
    objective: Mapping[str, float] = field(default_factory=dict)
    warmup: int = 16
    temperature: float = 1.0
    seed: int = 0
    server: tuple[str, ...] = ()
    load: tuple[str, ...] = ()
    start_seconds: float = 1800.0

    def __post_init__(self) -> None:
        if not self.rates or any(not rate > 0 for rate in self.rates):
            raise DataError(f"request rates must be above 0, got {_listed(self.rates)}.")
        if len(set(self.rates)) < len(self.rates):
            raise DataError(f"request rates must differ, got {_listed(self.rates)}.")
        for name in ("repetitions", "input_tokens", "seconds", "start_seconds"):
            if not getattr(self, name) > 0:
                raise DataError(f"{name} must be above 0, got {getattr(self, name)}.")
        if self.output_tokens < 2:
            raise DataError(
                f"answers need 2 tokens or more to have a decoding step, got {self.output_tokens}."
            )
        if self.requests is not None and self.requests < 1:
            raise DataError(f"a load has 1 request or more, got {self.requests}.")
        if self.requests is None and math.inf in self.rates:
            raise DataError("at an infinite rate the number of requests must be given: --requests 200.")
        if self.warmup < 0 or self.temperature < 0:
            raise DataError("warm-up requests and temperature must be 0 or more.")
        for name, bound in self.objective.items():
            if name not in OBJECTIVES:
                raise DataError(f"no objective {name!r}.{did_you_mean(name, OBJECTIVES)}")
            if not bound > 0:
                raise DataError(f"the objective {name} must be above 0 ms, got {bound}.")

    def requests_at(self, rate: float) -> int:
        """Give the requests of a load at ``rate``."""
        return self.requests if self.requests is not None else max(1, math.ceil(rate * self.seconds))

    def seed_of(self, rate: float, repetition: int) -> int:
        """Seed of prompts and arrivals: the same for every variant, another for every load."""
        text = f"{self.seed} {rate:g} {repetition}"
        return int(hashlib.sha256(text.encode()).hexdigest()[:7], 16)


def read_objective(text: str) -> dict[str, float]:
    """Read ``ttft:2000,tpot:100``.

    Raises:
        DataError: If it is malformed.

    """
    bounds = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition(":")
        try:
            bounds[name.strip()] = float(value)
        except ValueError as error:
            raise DataError(
                f"the objective {part!r} is no NAME:MILLISECONDS. Write ttft:2000,tpot:100."
            ) from error
    return bounds


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values) or "none"
