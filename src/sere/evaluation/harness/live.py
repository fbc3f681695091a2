"""A live batch of fixed size over any mix of requests: a sequence that ends leaves, the next one comes.

What a policy does to a sequence depends on how many others decode with it, so the harness's own batches,
in which sequences that are finished stay until the last one ends, are no measure of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sere.evaluation.decoding import LiveBatch
from sere.evaluation.tokens import left_padded


class Job(Protocol):
    """A sequence to decode.

    Attributes:
        prompt: Token ids that are read at once, at least one.

    """

    prompt: Sequence[int]

    def take(self, logits: Tensor, best: int) -> int | None:
        """Look at the logits of the next token, shape [V], and their first choice ``best``.

        Returns:
            The token to feed next, None at the sequence's end.

        """
        ...


@dataclass
class Occupancy:
    """How full the batch was.

    Attributes:
        steps: Decoding steps.
        lived: Live sequences, summed over steps.

    """

    steps: int = 0
    lived: int = 0

    @property
    def mean(self) -> float:
        """Mean live sequences of a step; 0 without steps."""
        return self.lived / self.steps if self.steps else 0.0


def run_live(
    model: Any,
    tokenizer: Any,
    jobs: Iterable[Job],
    batch_size: int,
    occupancy: Occupancy | None = None,
    progress: Callable[[int], None] | None = None,
) -> Occupancy:
    """Decode all jobs, in their order, with ``batch_size`` of them alive as long as there are so many.

    Models whose cache cannot take new sequences (windows, recurrent states) decode in waves.

    Args:
        model: A Transformers causal language model in evaluation mode.
        tokenizer: Its tokenizer, for padding.
        jobs: What to decode.
        batch_size: B.
        occupancy: Counted further, if given.
        progress: Told how many jobs have ended.

    """
    run = _Run(model, tokenizer, list(jobs)[::-1], occupancy or Occupancy(), progress)
    with torch.inference_mode():
        while run.waiting or run.alive:
            while run.waiting and len(run.alive) < batch_size and run.live.can_join():
                run.admit(batch_size - len(run.alive))
            if run.alive:
                run.advance()
    return run.occupancy


class _Run:
    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        waiting: list[Job],
        occupancy: Occupancy,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.model, self.tokenizer, self.waiting = model, tokenizer, waiting
        self.occupancy, self.progress = occupancy, progress
        self.total = len(waiting)
        self.live = LiveBatch(model)
        self.alive: list[Job] = []
        self.tokens: list[int] = []

    def admit(self, places: int) -> None:
        """Prefill the next jobs and put those that go on into the batch."""
        new = [self.waiting.pop() for _ in range(min(places, len(self.waiting)))]
        ids, mask = left_padded(self.tokenizer, [job.prompt for job in new])
        joining = LiveBatch(self.model)
        rows, tokens = _next(new, joining.prefill(ids.to(self.model.device), mask.to(self.model.device)))
        joining.keep(torch.tensor(rows, dtype=torch.long, device=self.model.device))
        if rows:
            self.live.join(joining)
            self.alive += [new[row] for row in rows]
            self.tokens += tokens
        self._tell()

    def advance(self) -> None:
        """Decode one step and let go of the sequences that ended."""
        self.occupancy.steps += 1
        self.occupancy.lived += len(self.alive)
        fed = torch.tensor(self.tokens, dtype=torch.long, device=self.model.device)
        rows, self.tokens = _next(self.alive, self.live.step(fed))
        ended = len(rows) < len(self.alive)
        self.live.keep(torch.tensor(rows, dtype=torch.long, device=self.model.device))
        self.alive = [self.alive[row] for row in rows]
        if ended:
            self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(self.total - len(self.waiting) - len(self.alive))


def _next(jobs: Sequence[Job], logits: Tensor) -> tuple[list[int], list[int]]:
    """Rows that go on, and their next tokens."""
    rows, tokens = [], []
    for row, (job, best) in enumerate(zip(jobs, logits.argmax(-1).tolist(), strict=True)):
        token = job.take(logits[row], best)
        if token is not None:
            rows.append(row)
            tokens.append(token)
    return rows, tokens
