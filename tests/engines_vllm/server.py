"""A real server for tests: start it, drive it, stop it."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.engines_vllm.conftest import ROOT, environment

PLAIN = """
import sys
from sere.engines.vllm.serve import name_the_distribution
from vllm.entrypoints.cli.main import main
name_the_distribution()
main()
"""

# A small cache is soon all touched: after that, growth would be a leak.
OPTIONS = (
    *("--enforce-eager", "--dtype", "float32", "--max-model-len", "96", "--max-num-seqs", "32"),
    *("--kv-cache-memory-bytes", str(2**25)),
)


def add_tokenizer(folder: Path, size: int) -> None:
    """Save a tokenizer of the words ``w0``, ``w1``, ... beside a model."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(size)}
    tokenizer = Tokenizer(models.WordLevel(words, "w2"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name}_token": f"w{i}" for i, name in enumerate(("bos", "eos", "unk"))},
    )
    fast.save_pretrained(folder)


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> str:
        import httpx

        return httpx.get(self.url + path, timeout=20).raise_for_status().text

    def call(self, method: str, *arguments: str) -> list[Any]:
        """Ask every worker, through the server's development endpoint."""
        import httpx

        body = {"method": method, "args": list(arguments)}
        answer = httpx.post(f"{self.url}/collective_rpc", json=body, timeout=20).raise_for_status()
        return list(answer.json()["results"])

    def series(self) -> dict[str, float]:
        """All ``sere_*`` samples at ``/metrics``, by name and labels."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith("sere_")]
        return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines)}

    def total(self, name: str, layer: str, *phases: str) -> float:
        """Sum of a counter of one layer over phases, first worker."""
        wanted = re.compile(
            rf'sere_{name}_total{{engine="0",layer="{re.escape(layer)}",phase="(\w+)",worker="0"}}'
        )
        found = {match[1]: value for key, value in self.series().items() if (match := wanted.fullmatch(key))}
        return sum(found.get(phase, 0.0) for phase in phases)

    def memory(self) -> int:
        """Resident bytes of the server and its workers."""
        import psutil

        root = psutil.Process(self.process.pid)
        return sum(process.memory_info().rss for process in [root, *root.children(recursive=True)])

    def stop(self, how: int = signal.SIGINT, timeout: float = 90) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout)


@contextmanager
def serving(
    model: Path, settings: dict[str, Any] | None, log: Path, *options: str, **env: str
) -> Iterator[Server]:
    """Start a server and wait until it answers; it is killed at the end if it still runs.

    Without settings it is ``vllm serve`` without the plugin's key.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sere.engines.vllm", str(model), json.dumps(settings)]
    if settings is None:
        command = [sys.executable, "-c", PLAIN, "serve", str(model)]
    command += ["--port", str(port), "--host", "127.0.0.1", "--served-model-name", "small"]
    command += ["--gpu-memory-utilization", "0.2", *options]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(
                VLLM_LOG_STATS_INTERVAL="1", VLLM_LOGGING_LEVEL="INFO", VLLM_CPU_KVCACHE_SPACE=None, **env
            ),
            stdout=stream,
            stderr=stream,
        )
        server = Server(process, port, log)
        try:
            _wait(server)
            yield server
        finally:
            if process.poll() is None:
                _kill(process)


def _wait(server: Server, timeout: float = 240) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if server.process.poll() is not None:
            raise RuntimeError(f"the server ended: {server.log.read_text(errors='replace')[-4000:]}")
        try:
            server.get("/health")  # whatever fails, it is not up yet
        except Exception:
            time.sleep(0.5)
        else:
            return
    raise TimeoutError(server.log.read_text(errors="replace")[-4000:])


def _kill(process: subprocess.Popen[bytes]) -> None:
    import psutil

    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for member in family:
        member.kill()
    process.wait()


@dataclass
class Load:
    """What clients saw."""

    finished: int = 0
    cancelled: int = 0
    tokens: int = 0
    failed: list[str] = field(default_factory=list)


async def drive(url: str, requests: int, clients: int, cancel: float, seed: int = 0) -> Load:
    """Stream completions of mixed lengths from concurrent clients; a share of them hangs up half-way."""
    from openai import AsyncOpenAI

    load, queue = Load(), iter(range(requests))

    async def client() -> None:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as api:
            for number in queue:
                draw = random.Random(seed * 100003 + number)
                length, wanted = draw.choice([1, 5, 20, 60]), draw.choice([1, 4, 12, 24])
                words = " ".join(f"w{draw.randrange(3, 96)}" for _ in range(length))
                hang_up = draw.random() < cancel
                try:
                    stream = await api.completions.create(
                        model="small",
                        prompt=words,
                        max_tokens=wanted,
                        temperature=0,
                        stream=True,
                        stream_options={"include_usage": True},
                        extra_body={"ignore_eos": True, "skip_special_tokens": False},
                    )
                    used, reason = 0, ""
                    async for event in stream:
                        reason = next((choice.finish_reason for choice in event.choices), None) or reason
                        used = event.usage.completion_tokens if event.usage else used
                        if hang_up:
                            await stream.close()
                            break
                except Exception as error:
                    load.failed.append(f"{type(error).__name__}: {error}")
                    continue
                if hang_up:
                    load.cancelled += 1
                elif used and reason == "length":
                    load.finished += 1
                    load.tokens += used
                else:
                    load.failed.append(f"asked for {wanted} tokens, got {used}: {reason}")

    await asyncio.gather(*(client() for _ in range(clients)))
    return load
