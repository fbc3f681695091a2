"""What a record must say about the run that made it."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from sere.version import __version__


class Provenance(BaseModel):
    """When, where and with what a run was made.

    Attributes:
        created: Time of the run's start, UTC, ISO 8601.
        command: The process's program name and arguments.
        versions: Package to version.
        machine: Processor architecture and operating system.
        processor: Instruction set that torch uses.
        threads: CPU threads of torch.
        device: Where the model lay.
        dtype: Floating type of the model's weights.
        experts: Implementation of the experts' product in Transformers.

    """

    created: str
    command: list[str]
    versions: dict[str, str]
    machine: str
    processor: str
    threads: int
    device: str
    dtype: str
    experts: str

    @classmethod
    def now(cls, model: Any) -> Provenance:
        """Collect it for ``model`` in this process."""
        packages = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")}
        return cls(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=[Path(sys.argv[0]).name, *sys.argv[1:]],
            versions={"sere": __version__, "python": platform.python_version(), **packages},
            machine=f"{platform.machine()} {platform.system()}",
            processor=torch.backends.cpu.get_cpu_capability(),
            threads=torch.get_num_threads(),
            device=str(model.device),
            dtype=str(model.dtype).removeprefix("torch."),
            experts=str(getattr(model.config, "_experts_implementation", "unknown")),
        )
