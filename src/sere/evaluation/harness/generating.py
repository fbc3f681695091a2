"""One answer that is written token by token, greedily or sampled, up to a stop text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sere.errors import DataError, did_you_mean

_SPARE = 4
"""Tokens decoded beyond the longest stop text, for tokenizers that trim a text's beginning."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: 0 is greedy.
        top_k: Most likely tokens that stay; 0 for all.
        top_p: Least probability of the tokens that stay, the most likely first.
        repetition_penalty: Logits of tokens that occurred, prompt included, are divided by it where
            positive and multiplied where negative (Keskar et al., arXiv 1909.05858).

    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    @classmethod
    def of(cls, task: str, given: Mapping[str, Any]) -> Sampling:
        """Read a task's generation settings.

        Raises:
            DataError: If there is one that a live batch cannot follow.

        """
        known = cls.__dataclass_fields__
        found = {name: value for name, value in given.items() if name in known and value is not None}
        for name, value in given.items():
            if name not in (*known, "do_sample") and value not in (None, 1, False):
                hint = did_you_mean(name, [*known, "do_sample", "max_gen_toks", "until"])
                raise DataError(f"task {task} asks for {name}={value}, which cannot be followed here.{hint}")
        sampled = bool(given.get("do_sample", found.get("temperature", 0.0)))
        temperature = float(found.get("temperature", 1.0)) if sampled else 0.0
        return cls(
            temperature,
            int(found.get("top_k", 0)),
            float(found.get("top_p", 1.0)),
            float(found.get("repetition_penalty", 1.0)),
        )

    @property
    def greedy(self) -> bool:
        """Whether it is the first choice of the logits as they are."""
        return self.temperature == 0 and self.repetition_penalty == 1


class Generated:
    """An answer in the making.

    Args:
        tokenizer: For stop texts.
        prompt: Token ids, at least one.
        most: New tokens at most, an end token included.
        ends: End tokens.
        stops: Texts that end the answer where they occur in it.
        sampling: How tokens are chosen.
        seed: Of the draws: the same for every policy, so that two policies with the same logits write the
            same answer, and with similar ones often the same.

    Attributes:
        prompt: As given.
        tokens: New tokens, without the end token.

    """

    def __init__(
        self,
        tokenizer: Any,
        prompt: Sequence[int],
        most: int,
        ends: frozenset[int],
        stops: Sequence[str],
        sampling: Sampling,
        seed: int,
    ) -> None:
        self.prompt = prompt
        self.tokens: list[int] = []
        self._tokenizer, self._most, self._ends, self._sampling = tokenizer, most, ends, sampling
        self._stops = [stop for stop in stops if stop]
        # A token of byte-level tokenizers is one byte at least.
        self._tail = max((len(stop.encode()) for stop in self._stops), default=0) + _SPARE
        self._generator = torch.Generator().manual_seed(seed)

    def take(self, logits: Tensor, best: int) -> int | None:
        """Choose the next token; see :class:`~sere.evaluation.harness.live.Job`."""
        token = best if self._sampling.greedy else self._draw(logits)
        if token in self._ends:
            return None
        self.tokens.append(token)
        if len(self.tokens) >= self._most or self._stopped():
            return None
        return token

    def _stopped(self) -> bool:
        if not self._stops:
            return False
        tail = self._tokenizer.decode(self.tokens[-self._tail :], skip_special_tokens=True)
        return any(stop in tail for stop in self._stops)

    def _draw(self, logits: Tensor) -> int:
        how = self._sampling
        values = logits.detach().float().cpu().clone()
        if how.repetition_penalty != 1:
            seen = torch.tensor(sorted({*self.prompt, *self.tokens}))
            there = values[seen]
            values[seen] = torch.where(
                there > 0, there / how.repetition_penalty, there * how.repetition_penalty
            )
        if how.temperature == 0:
            return int(values.argmax())
        values /= how.temperature
        if how.top_k:
            values[values < values.topk(min(how.top_k, len(values))).values[-1]] = -torch.inf
        if how.top_p < 1:
            ordered, places = values.sort(descending=True)
            before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
            values[places[before >= how.top_p]] = -torch.inf
        return int(torch.multinomial(values.softmax(-1), 1, generator=self._generator))
