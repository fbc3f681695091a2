"""Settings of a sweep that its points depend on."""

from __future__ import annotations

from dataclasses import dataclass

from sere.errors import DataError

SHORTEST = 2
"""Fewest tokens after the prompt: one that is decoded, and its target."""


@dataclass(frozen=True)
class SweepConfig:
    """How a policy is measured at one batch size on one seed's text.

    Attributes:
        seeds: Disjoint shares that the held-out texts are dealt into; what is measured on one is
            independent of the others, and intervals are over them.
        sequences: Sequences of one share, N. A batch size takes as many whole batches as they give, at
            least one.
        sequence_length: Tokens of each, L.
        prompt_tokens: Leading tokens that are prefill: kept as routed, neither counted nor scored.
        forward_tokens: Most tokens of one forward pass, but at least one batch; limits the memory.
        shuffle: Seed of the order in which texts are dealt.

    Raises:
        DataError: If a value is out of range.

    """

    seeds: int = 5
    sequences: int = 16
    sequence_length: int = 96
    prompt_tokens: int = 16
    forward_tokens: int = 8192
    shuffle: int = 0

    def __post_init__(self) -> None:
        for name in ("seeds", "sequences", "prompt_tokens", "forward_tokens"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be 1 or more, got {getattr(self, name)}.")
        if self.sequence_length < self.prompt_tokens + SHORTEST:
            raise DataError(
                f"sequences of {self.sequence_length} tokens leave nothing to score after "
                f"{self.prompt_tokens} prompt tokens. Ask for at least {self.prompt_tokens + SHORTEST}."
            )

    def sequences_for(self, batch_size: int) -> int:
        """Sequences measured at ``batch_size``: whole batches only, at least one."""
        return max(1, self.sequences // batch_size) * batch_size

    def batches_a_forward(self, batch_size: int) -> int:
        """Batches that one forward pass holds."""
        return max(1, self.forward_tokens // (batch_size * self.sequence_length))
