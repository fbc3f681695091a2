"""Settings of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sere.demo.tasks import HELDOUT_COUNT
from sere.errors import DataError

MOST_BATCHES = 16
"""Most batches of held-out text at one batch size."""
SHORTEST = 4
"""Fewest tokens after the prompt: two steps of warm-up, one that is timed, and a last target."""


@dataclass(frozen=True)
class CompareConfig:
    """What to run; the defaults are those of ``sere compare``.

    Attributes:
        batch_sizes: Live sequences, one comparison for each.
        mode: How fidelity is measured: ``real`` decodes held-out text step by step with a cache;
            ``proxy`` takes the t-th tokens of B sequences as one virtual step of one forward pass.
        sequences: Held-out sequences. Each batch size takes as many full batches as they give, at
            least one and at most :data:`MOST_BATCHES`: decoding one by one takes long.
        sequence_length: Tokens of each, L.
        prompt_tokens: Leading tokens that are prefill: kept as routed, neither counted nor scored.
        tasks: ``bundled`` for the bundled model's tasks, the path of a task file, or None.
        examples_per_task: Bundled examples of each task, at most 100.
        speed_rounds: Rounds of the speed measurement, each over one batch of held-out text; 0 leaves
            it out.
        company: Measure what other neighbours in a batch change, by the proxy, where the texts give two
            batches.
        seed: Seed of the choice of texts and of the intervals.

    Raises:
        DataError: If a value is out of range.

    """

    batch_sizes: tuple[int, ...] = (1, 4, 16, 64)
    mode: Literal["real", "proxy"] = "real"
    sequences: int = 64
    sequence_length: int = 128
    prompt_tokens: int = 16
    tasks: str | None = None
    examples_per_task: int = 20
    speed_rounds: int = 5
    company: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise DataError(
                f"batch sizes must be 1 or more, got {self.batch_sizes}. Give for example 1, 4, 16."
            )
        if len(set(self.batch_sizes)) < len(self.batch_sizes):
            raise DataError(f"batch sizes {self.batch_sizes} name one twice. Give each once.")
        if self.mode not in ("real", "proxy"):
            raise DataError(f"mode must be 'real' or 'proxy', got {self.mode!r}.")
        for name in ("sequences", "prompt_tokens", "examples_per_task"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be 1 or more, got {getattr(self, name)}.")
        if self.examples_per_task > HELDOUT_COUNT:
            raise DataError(
                f"examples_per_task is {self.examples_per_task}; {HELDOUT_COUNT} of each task are held out. "
                "Ask for no more than that."
            )
        if self.speed_rounds < 0:
            raise DataError(f"speed_rounds must be 0 (no measurement) or more, got {self.speed_rounds}.")
        if self.sequence_length < self.prompt_tokens + SHORTEST:
            raise DataError(
                f"sequences of {self.sequence_length} tokens leave nothing to score after "
                f"{self.prompt_tokens} prompt tokens. Ask for at least {self.prompt_tokens + SHORTEST}."
            )

    def sequences_for(self, batch_size: int) -> int:
        """Held-out sequences at ``batch_size``: full batches only, at most :data:`MOST_BATCHES`."""
        return min(max(1, self.sequences // batch_size), MOST_BATCHES) * batch_size
