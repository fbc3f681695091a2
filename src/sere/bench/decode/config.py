"""Settings of an offline decode benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sere.errors import DataError

EngineName = Literal["transformers", "vllm"]


@dataclass(frozen=True)
class DecodeConfig:
    """How decoding is timed.

    Attributes:
        batch_sizes: B, live sequences.
        rounds: Rounds at each batch size; in each, every variant decodes the same prompts once.
        steps: Timed decoding steps of a variant in a round.
        prompt_tokens: Tokens of a prompt; its prefill is not timed.
        warmup: Steps before the clock starts, in each turn.
        seed: Seed of the choice of texts, and of sampling in vLLM.

    Raises:
        DataError: If a value is out of range.

    """

    batch_sizes: tuple[int, ...] = (1, 4, 16, 64)
    rounds: int = 5
    steps: int = 32
    prompt_tokens: int = 32
    warmup: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise DataError(f"batch sizes must be 1 or more, got {list(self.batch_sizes)}.")
        if len(set(self.batch_sizes)) < len(self.batch_sizes):
            raise DataError(f"batch sizes must differ, got {list(self.batch_sizes)}.")
        for name in ("rounds", "steps", "prompt_tokens"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be 1 or more, got {getattr(self, name)}.")
        if self.warmup < 0:
            raise DataError(f"warm-up steps must be 0 or more, got {self.warmup}.")

    @property
    def length(self) -> int:
        """Tokens of a sequence: prompt, warm-up and timed steps."""
        return self.prompt_tokens + self.warmup + self.steps
