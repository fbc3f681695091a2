"""Greedy decoding of many prompts with a constant number of live sequences, as a server does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sere.errors import DataError
from sere.evaluation.decoding import LiveBatch
from sere.evaluation.tokens import context_length, left_padded


@dataclass(frozen=True)
class Completions:
    """What was decoded.

    Attributes:
        tokens: New tokens of every prompt, in the prompts' order, without the end token.
        steps: Decoding steps in all.
        mean_live: Mean live sequences of a step. Below the batch size where the batch runs empty: at
            the end, at the end of every wave of a model that decodes in waves, and throughout if
            there are fewer prompts than places.

    """

    tokens: list[list[int]]
    steps: int
    mean_live: float


def decode_greedily(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], budgets: Sequence[int], batch_size: int
) -> Completions:
    """Decode every prompt; a sequence that ends leaves the batch, and the next prompt takes its place.

    A batch thus never holds finished sequences, which would vote on experts without being read. For
    models whose cache cannot take new sequences (windows, recurrent states) the next prompts wait
    until the whole batch has ended.

    Args:
        model: A Transformers causal language model in evaluation mode.
        tokenizer: Its tokenizer. Without an end token every prompt uses up its budget.
        prompts: Token ids of every prompt.
        budgets: Most new tokens of every prompt, the end token included.
        batch_size: B, live sequences.

    Raises:
        DataError: As :func:`check_lengths`.

    """
    check_lengths(model, prompts, budgets)
    run = _Run(model, tokenizer, prompts, budgets)
    with torch.inference_mode():
        while run.waiting or run.owners:
            while run.waiting and len(run.owners) < batch_size and run.live.can_join():
                run.admit(batch_size - len(run.owners))
            if run.owners:
                run.advance()
    return Completions(run.tokens, run.steps, run.lived / max(run.steps, 1))


class _Run:
    def __init__(
        self, model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], budgets: Sequence[int]
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.prompts, self.budgets = prompts, budgets
        self.ends = _end_tokens(model, tokenizer)
        self.live = LiveBatch(model)
        self.waiting = list(range(len(prompts)))[::-1]
        self.owners: list[int] = []
        self.last: Tensor = torch.zeros(0, dtype=torch.long, device=model.device)
        self.tokens: list[list[int]] = [[] for _ in prompts]
        self.steps = self.lived = 0

    def admit(self, places: int) -> None:
        """Prefill the next prompts and put those that go on into the batch."""
        new = [self.waiting.pop() for _ in range(min(places, len(self.waiting)))]
        ids, mask = left_padded(self.tokenizer, [self.prompts[index] for index in new])
        joining = LiveBatch(self.model)
        first = joining.prefill(ids.to(self.model.device), mask.to(self.model.device)).argmax(-1)
        rows = self._take(new, first)
        joining.keep(rows)
        if len(rows):
            self.live.join(joining)
            self.owners += [new[row] for row in rows.tolist()]
            self.last = torch.cat([self.last, first[rows]])

    def advance(self) -> None:
        """Decode one token of every live sequence and let go of those that ended."""
        self.steps, self.lived = self.steps + 1, self.lived + len(self.owners)
        self.last = self.live.step(self.last).argmax(-1)
        rows = self._take(self.owners, self.last)
        self.live.keep(rows)
        self.owners = [self.owners[row] for row in rows.tolist()]
        self.last = self.last[rows]

    def _take(self, owners: Sequence[int], tokens: Tensor) -> Tensor:
        """Note the new tokens; return the rows that go on."""
        going = []
        for row, (owner, token) in enumerate(zip(owners, tokens.tolist(), strict=True)):
            if token not in self.ends:
                self.tokens[owner].append(token)
                if len(self.tokens[owner]) < self.budgets[owner]:
                    going.append(row)
        return torch.tensor(going, dtype=torch.long, device=tokens.device)


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    generation = getattr(model, "generation_config", None)
    ends = getattr(generation, "eos_token_id", None)
    listed = ends if isinstance(ends, list) else [ends]
    return frozenset(end for end in (tokenizer.eos_token_id, *listed) if end is not None)


def check_lengths(model: Any, prompts: Sequence[Sequence[int]], budgets: Sequence[int]) -> None:
    """See that every prompt can be decoded.

    Raises:
        DataError: If a prompt holds no token, or is with its budget beyond the model's context.

    """
    limit = context_length(model)
    for number, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True), start=1):
        if not prompt:
            raise DataError(f"the tokenizer makes no token of prompt {number}. Write it differently.")
        if limit is not None and len(prompt) + budget > limit:
            raise DataError(
                f"prompt {number} has {len(prompt)} tokens and {budget} for the answer; the model's context "
                f"holds {limit}. Shorten the prompt or leave it out."
            )
