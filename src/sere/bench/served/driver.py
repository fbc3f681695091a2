"""Drive a server: a few requests to warm it up, and ``vllm bench serve`` for the load."""

from __future__ import annotations

import http.client
import json
import os
import random
import string
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sere.bench.results import Load, read_result
from sere.bench.served.config import ServedConfig
from sere.bench.served.server import HOST, Server, cause, tail
from sere.engines.vllm import plain
from sere.errors import DataError, EngineError

NAME = "bench"
"""The name that a server is given and asked by."""
_PAUSE = 0.2
_LONGEST_S = 600.0


def warm_up(server: Server, config: ServedConfig) -> int:
    """Send a few requests at once, as long as those to come, and wait for their answers.

    Returns:
        Tokens of the answers after their first ones.

    Raises:
        EngineError: If one is refused.

    """
    draw = random.Random(config.seed)
    prompts = [
        " ".join("".join(draw.choices(string.ascii_lowercase, k=4)) for _ in range(config.input_tokens))
        for _ in range(config.warmup)
    ]
    if not prompts:
        return 0
    with ThreadPoolExecutor(max_workers=len(prompts)) as pool:
        tokens = list(pool.map(lambda prompt: _complete(server, prompt, config), prompts))
    return sum(tokens) - len(tokens)


def _complete(server: Server, prompt: str, config: ServedConfig) -> int:
    body = {
        "model": NAME,
        "prompt": prompt,
        "truncate_prompt_tokens": config.input_tokens,
        "max_tokens": config.output_tokens,
        "ignore_eos": True,
        "temperature": config.temperature,
    }
    connection = http.client.HTTPConnection(HOST, server.port, timeout=_LONGEST_S)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        if answer.status != http.HTTPStatus.OK:
            raise EngineError(f"the server refused a request of the warm-up: {text[:500]}. Mend --server.")
        return int(json.loads(text)["usage"]["completion_tokens"])
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        server.check()
        raise EngineError(
            f"the server gave no answer to a request of the warm-up: {error}. See its log."
        ) from error
    finally:
        connection.close()


def load_command(
    url: str, model: str, config: ServedConfig, rate: float, repetition: int, result: Path
) -> list[str]:
    """Words of ``vllm bench serve`` for one load."""
    words = ["--backend", "vllm", "--base-url", url, "--model", model, "--served-model-name", NAME]
    words += ["--dataset-name", "random", "--random-input-len", str(config.input_tokens)]
    words += ["--random-output-len", str(config.output_tokens), "--ignore-eos", "--disable-tqdm"]
    words += ["--num-prompts", str(config.requests_at(rate)), "--request-rate", f"{rate:g}"]
    words += ["--seed", str(config.seed_of(rate, repetition)), "--temperature", f"{config.temperature:g}"]
    words += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99"]
    words += ["--save-result", "--result-dir", str(result.parent), "--result-filename", result.name]
    if config.objective:
        words += ["--goodput", *(f"{name}:{bound:g}" for name, bound in config.objective.items())]
    return plain.command("bench", "serve", *words, *config.load)


def drive(
    server: Server,
    model: str,
    config: ServedConfig,
    rate: float,
    repetition: int,
    result: Path,
    *,
    log: Path,
    waiting: Callable[[], None] = lambda: None,
) -> tuple[Load, str]:
    """Put one load on a server, and keep the load generator's file.

    Args:
        server: The server.
        model: Where the tokenizer lies.
        config: Settings.
        rate: Requests a second.
        repetition: From 0.
        result: Where the load generator's file is to lie; it appears there whole or not at all.
        log: File for what the load generator prints.
        waiting: Called while waiting.

    Returns:
        The load, and the file's SHA-256.

    Raises:
        EngineError: If the server ends, the load generator fails, or no request is answered.
        RecordError: If its file is cut short.

    """
    result.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=result.parent, prefix=".load.") as folder:
        written = Path(folder) / result.name
        command = load_command(server.url, model, config, rate, repetition, written)
        with log.open("wb") as stream:
            process = subprocess.Popen(  # noqa: S603 - our own words
                command,
                env={**os.environ, "VLLM_PLUGINS": ""},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            while process.poll() is None:
                server.check()
                waiting()
                time.sleep(_PAUSE)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode or not written.is_file():
            raise EngineError(
                f"vllm bench serve failed with code {process.returncode}{cause(log)}. The end of {log}:\n"
                f"{tail(log)}\n"
                "Mend what it says; measured loads are kept."
            )
        loads, digest = read_result(written)
        if not loads[0].completed:
            raise EngineError(
                f"none of {config.requests_at(rate)} requests was answered. See {log} and {server.log}."
            )
        try:
            written.replace(result)
        except OSError as error:
            raise DataError(f"cannot write {result}: {error.strerror}. Choose another --out.") from error
    return loads[0], digest
