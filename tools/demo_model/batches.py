"""Endless training batches: text chunks and packed task examples, loss on task answers only."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from transformers import PreTrainedTokenizerFast

from sere.demo.tasks import TASKS, generate, heldout

SEQUENCE = 128
TEXT_SHARE = 0.25
IGNORED = -100
WEIGHTS = {"add": 2.0, "subtract": 2.5, "multiply": 1.5, "sort": 1.5, "lookup": 1.5}


class Batches:
    """Seeded source of (input ids, labels), each of shape [rows, SEQUENCE], int64."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, texts: list[str], seed: int) -> None:
        self.rng = random.Random(seed)
        self.encode = tokenizer.backend_tokenizer.encode_batch
        self.end = int(tokenizer.eos_token_id)
        stream: list[int] = []
        for encoded in self.encode(texts, add_special_tokens=False):
            stream += [self.end, *encoded.ids]
        self.stream = torch.tensor(stream)
        self.hidden = {example.prompt for example in heldout()}
        self.names = list(TASKS)
        self.weights = [WEIGHTS.get(name, 1.0) for name in self.names]
        self.pending: list[tuple[list[int], list[int]]] = []

    def _text(self) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.rng.randrange(len(self.stream) - SEQUENCE)
        ids = self.stream[start : start + SEQUENCE]
        return ids, ids

    def _examples(self) -> Iterator[tuple[list[int], list[int]]]:
        while True:
            drawn = [generate(name, self.rng) for name in self.rng.choices(self.names, self.weights, k=256)]
            drawn = [example for example in drawn if example.prompt not in self.hidden]
            prompts = self.encode([example.prompt for example in drawn], add_special_tokens=False)
            answers = self.encode([example.answer for example in drawn], add_special_tokens=False)
            for prompt, answer in zip(prompts, answers, strict=True):
                yield prompt.ids, answer.ids

    def _tasks(self, source: Iterator[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
        ids, labels = [self.end], [IGNORED]
        while True:
            prompt, answer = self.pending.pop() if self.pending else next(source)
            if len(ids) + len(prompt) + len(answer) + 1 > SEQUENCE:
                self.pending.append((prompt, answer))
                break
            ids += [*prompt, *answer, self.end]
            labels += [IGNORED] * len(prompt) + [*answer, self.end]
        padding = SEQUENCE - len(ids)
        return torch.tensor(ids + [self.end] * padding), torch.tensor(labels + [IGNORED] * padding)

    def draw(self, rows: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield batches for ever."""
        source = self._examples()
        while True:
            pairs = [
                self._text() if self.rng.random() < TEXT_SHARE else self._tasks(source) for _ in range(rows)
            ]
            ids, labels = zip(*pairs, strict=True)
            yield torch.stack(ids), torch.stack(labels)
