"""Settings of a profile."""

from __future__ import annotations

from dataclasses import dataclass

from sere.errors import DataError


@dataclass(frozen=True)
class ProfileConfig:
    """What to measure.

    Attributes:
        batch_sizes: Rows of the measured steps, rising, at least two.
        levels: Numbers of distinct experts measured at each batch size, from K to all that its slots can
            name.
        steps: Timed steps of each shape in a round.
        rounds: Rounds over all batch sizes; steps of all shapes take turns in each.
        prompt_tokens: Tokens in the cache before the first step.
        expected_tokens: Decoded tokens of each sequence from which distinct experts are counted.
        seed: Seed of forced experts and of the choice of texts.

    Raises:
        DataError: If a number is below 1, or there are not two rising batch sizes.

    """

    batch_sizes: tuple[int, ...] = (1, 4, 16, 48)
    levels: int = 5
    steps: int = 3
    rounds: int = 3
    prompt_tokens: int = 16
    expected_tokens: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("levels", "steps", "rounds", "prompt_tokens", "expected_tokens"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be 1 or more, got {getattr(self, name)}.")
        sizes = self.batch_sizes
        if len(sizes) < 2 or min(sizes) < 1 or list(sizes) != sorted(set(sizes)):
            raise DataError(
                f"a profile needs two or more different batch sizes from 1 on, got {list(sizes)}. "
                "Leave --batch-size out for 1, 4, 16 and 48."
            )
        if self.levels < 2:
            raise DataError("levels must be 2 or more, or experts and rows cannot be told apart.")
