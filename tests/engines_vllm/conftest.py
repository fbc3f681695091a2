"""Skip what needs vLLM where it is not installed; run it in processes of its own where it is."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.engines_vllm.checks")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def small_model(tmp_path_factory):
    """Folder with a small random Qwen3-MoE in ``model``, with a tokenizer, and an ``artifact`` of it."""
    from tests.engines_vllm.server import add_tokenizer

    place = tmp_path_factory.mktemp("small")
    built = run_module("tests.engines_vllm.build", str(place), "qwen3_moe")
    assert built.returncode == 0, built.stderr[-3000:]
    add_tokenizer(place / "model", 96)
    return place


LONG = ("families", "compiled", "server", "steps", "failing_server", "parallel", "refusals", "bundled")
"""Files that take minutes, in the order to begin them: no worker is left alone with one at the end."""


def rank(item) -> int:
    name = item.path.stem.removeprefix("test_") if item.path.parent == Path(__file__).parent else ""
    return LONG.index(name) if name in LONG else len(LONG)


def pytest_collection_modifyitems(items):
    items.sort(key=rank)
    if importlib.util.find_spec("vllm") is not None:
        return
    skip = pytest.mark.skip(reason="vLLM is not installed here: make test-vllm runs these in their own place")
    for item in items:
        if "vllm" in item.keywords:
            item.add_marker(skip)


def cores() -> list[int]:
    """Cores of this test process: its share, where several run side by side."""
    every = sorted(os.sched_getaffinity(0))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1 or len(every) < workers:
        return every
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    return every[number::workers]


def environment(**extra: str | None) -> dict[str, str]:
    """Environment of a process that runs vLLM on a small machine; None takes a variable out."""
    values = {
        **os.environ,
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores())),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        **extra,
    }
    return {name: value for name, value in values.items() if value is not None}


def run_module(module: str, *arguments: str, timeout: float = 1200, **extra: str):
    """Run ``python -m module`` from the repository's root and return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def records(done) -> list[dict]:
    """JSON lines that a driver printed; its whole output if there is none."""
    lines = [line[7:] for line in done.stdout.splitlines() if line.startswith("RECORD ")]
    assert lines, f"exit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return [json.loads(line) for line in lines]
