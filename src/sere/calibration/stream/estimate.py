"""How far a streamed calibration has come, and how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sere.calibration.config import CalibrationConfig
from sere.calibration.progress import Progress

PAPER = (400, 128)
"""Sequences and tokens of each that the paper calibrates on."""


@dataclass(frozen=True)
class LayerProgress(Progress):
    """State after one batch of one decoder layer; layers are the outer loop here."""

    @property
    def fraction(self) -> float:
        """Share of the work done, 0 to 1."""
        return (self.layers_done + (self.batch + 1) / self.batches) / self.layers


class Clock:
    """Seconds that loading and running each kind of decoder layer takes.

    Args:
        routed: For each decoder layer, whether it has routed experts.
        rounds: Batches that this process runs through each layer.

    """

    def __init__(self, routed: list[bool], rounds: int, config: CalibrationConfig, first: int) -> None:
        self.routed, self.rounds, self.config, self.first = routed, rounds, config, first
        self.loads: dict[bool, list[float]] = {True: [], False: []}
        self.runs: dict[bool, list[float]] = {True: [], False: []}
        self.started = time.monotonic()

    def loaded(self, layer: int, seconds: float) -> None:
        """Note how long a layer took to load."""
        self.loads[self.routed[layer]].append(seconds)

    def ran(self, layer: int, seconds: float) -> None:
        """Note how long a batch took to run through a layer."""
        self.runs[self.routed[layer]].append(seconds)

    def seconds(self, sequences: int, length: int) -> float:
        """Return the expected time of all layers on that much text, from what has been measured.

        A kind of layer that has not run yet is taken to be as slow as the other. The first batch of all is
        slower than the rest, and is left out once there is another.

        Args:
            sequences: Sequences of all processes.
            length: Tokens of each.

        """
        measured = min(self.config.batch_sequences, self.config.sequences) * self.config.sequence_length
        share = self.rounds / self.config.batches
        batches = sequences * length / measured * share
        return sum(self._layer(kind, batches) for kind in self.routed)

    def _layer(self, kind: bool, batches: float) -> float:
        known = kind if self.runs[kind] else not kind
        runs = self.runs[known][1:] or self.runs[known]
        loads = self.loads[known]
        return sum(loads) / len(loads) + batches * sum(runs) / len(runs)

    def due(self) -> bool:
        """Whether enough has just been measured for a first estimate: two batches of a routed layer."""
        return len(self.runs[True]) == min(2, self.rounds)

    def sentence(self, name: str) -> str:
        """Say how long all of it takes, and how long the paper's amount of text would."""
        amount = (self.config.sequences, self.config.sequence_length)
        text = (
            f"{name}, {amount[0]} x {amount[1]} tokens, this machine: about {spoken(self.seconds(*amount))}"
        )
        if amount != PAPER:
            text += f" ({PAPER[0]} x {PAPER[1]} tokens: about {spoken(self.seconds(*PAPER))})"
        return text

    def report(
        self, callback: Callable[[Progress], None] | None, layer: int, number: int, tokens: int, name: str
    ) -> None:
        """Tell a callback that a batch has passed a layer."""
        if callback is None:
            return
        layers = len(self.routed)
        seconds = max(time.monotonic() - self.started, 1e-9)
        done = layer - self.first + (number + 1) / self.rounds
        share = done / max(layers - self.first, 1)
        left = seconds * (1 - share) / share
        speed = tokens * done / layers / seconds
        callback(LayerProgress(number, self.rounds, name, layer, layers, speed, left))


def spoken(seconds: float) -> str:
    """Write a time as a person would say it."""
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    if seconds < 10 * 60:
        return f"{seconds / 60:.1f} minutes"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
