"""How much memory a streamed calibration takes, said before it starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sere.calibration.config import CalibrationConfig
from sere.calibration.walk import fitting_chunk

IN_MEMORY = 256 * 2**20
"""Bytes of hidden states that stay in memory; more are kept in mapped files."""
_BLOCKS = 64 * 2**20
"""Tiles and blocks in float64."""
_LIBRARIES = 200 * 2**20
"""What libraries take between the start of the layers and the first result."""
GB = 1e9


@dataclass(frozen=True)
class Bound:
    """Most memory that is held at once, in bytes, by what holds it.

    Attributes:
        layer: Weights of the largest decoder layer.
        staging: Beside it while it is loaded.
        outside: Weights of the rest: embeddings above all.
        states: Hidden states and other inputs of the layers that stay in memory.
        work: Outputs of all experts for one chunk of tokens, and what making them needs.
        process: Held already: Python and its libraries.
        on_disk: Hidden states kept in mapped files; not part of the sum.

    """

    layer: int
    staging: int
    outside: int
    states: int
    work: int
    process: int
    on_disk: int

    @property
    def total(self) -> int:
        """Bytes in all: embeddings are gone when layers come, and loading is over when work begins."""
        return self.process + self.states + max(self.outside, self.layer + max(self.staging, self.work))

    def __str__(self) -> str:
        parts = {
            "largest layer": self.layer,
            "work on it": max(self.staging, self.work),
            "embeddings, before that": self.outside,
            "hidden states": self.states,
            "Python and libraries": self.process,
        }
        named = ", ".join(f"{name} {value / GB:.2f}" for name, value in parts.items())
        disk = f"; hidden states on disk {self.on_disk / GB:.2f} GB" if self.on_disk else ""
        return f"memory: at most {self.total / GB:.2f} GB ({named}{disk})"


def work_bytes(layers: Sequence[Any], config: CalibrationConfig, width: int) -> int:
    """Bytes that the widest of ``layers`` needs for a chunk of tokens, or for a batch in its own forward.

    A row of a chunk (one token at one expert) is held a few times over at the model's width and at the
    experts' inner width, in the model's type and in float32.

    Args:
        layers: The MoE layers, as an engine found them.
        config: Settings.
        width: H, the model's width.

    """
    most = 0
    tokens = config.batch_sequences * config.sequence_length
    for layer in layers:
        matrices = [each for each in layer.module.parameters() if each.ndim == 3]
        if not matrices:
            continue
        inner = max(each[0].numel() for each in matrices) // width
        chunk = config.chunk_tokens or fitting_chunk(layer.num_experts, width)
        rows = max(layer.num_experts * chunk, tokens * layer.top_k)
        row = (6 * width + 3 * inner) * max(matrices[0].element_size(), 4)
        kept = 2 * layer.num_experts * tokens * width * matrices[0].element_size() if config.cka else 0
        if config.norm_predictor:
            kept += _predictor_bytes(config, width, matrices[0].element_size())
        most = max(most, rows * row + kept)
    return most + _BLOCKS


def _predictor_bytes(config: CalibrationConfig, width: int, size: int) -> int:
    """Bytes of a layer's inputs for all tokens, twice while they are joined, and of one regression."""
    return 2 * config.sequences * config.sequence_length * width * size + 8 * width * (2 * 4096 + 3 * width)


def resident() -> int:
    """Bytes of memory that this process holds now, 0 where that cannot be told."""
    return _status("VmRSS")


def peak() -> int:
    """Most bytes of memory that this process ever held, 0 where that cannot be told."""
    found = _status("VmHWM")
    if found or sys.platform == "win32":
        return found
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def _status(name: str) -> int:
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def process_bytes() -> int:
    """Bytes that Python and its libraries hold, with some for those that are not loaded yet."""
    return resident() + _LIBRARIES
