"""Calibrate a checkpoint on disk, one decoder layer in memory at a time."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sere.artifact import Artifact
from sere.calibration.calibrate import assemble, check_vocabulary, tokens
from sere.calibration.config import CalibrationConfig
from sere.calibration.progress import Progress
from sere.calibration.refusals import refuse_quantised
from sere.calibration.stream import memory, packed
from sere.calibration.stream.decoder import Outside, decoder_layers
from sere.calibration.stream.estimate import Clock
from sere.calibration.stream.integers import PACKED, IntegerShards
from sere.calibration.stream.opening import open_model, quantisation
from sere.calibration.stream.processes import Processes, SharedMeans
from sere.calibration.stream.relay import Relay
from sere.calibration.stream.shards import Shards
from sere.calibration.stream.weights import Weights
from sere.calibration.stream.work import Work, forget
from sere.calibration.walk import Walk
from sere.errors import CalibrationError
from sere.version import __version__


def calibrate_streamed(
    folder: str | Path,
    tokenizer: Any,
    texts: Sequence[str] | None = None,
    *,
    config: CalibrationConfig | None = None,
    dtype: Any = "auto",
    device: torch.device | str = "cpu",
    work: str | Path | None = None,
    restart: bool = False,
    trust_remote_code: bool = False,
    progress: Callable[[Progress], None] | None = None,
    notice: Callable[[str], None] | None = None,
    model_id: str | None = None,
    data_name: str | None = None,
) -> Artifact:
    """Measure how alike the experts of every layer of a checkpoint are, without loading it whole.

    The artifact is that of :func:`sere.calibration.calibrate`, bit for bit. Held at once: the largest
    decoder layer, and what :class:`sere.calibration.stream.memory.Bound` lists. Started by ``torchrun``, the
    processes share the batches; all of them return the same artifact.

    Args:
        folder: Checkpoint folder with safetensors files.
        tokenizer: Its tokenizer.
        texts: Documents, see :func:`load_texts`; None takes the bundled sample.
        config: Settings; None takes the paper's.
        dtype: Type of the weights, ``auto`` or a torch type, as in ``from_pretrained``.
        device: Where layers run.
        work: Folder that keeps finished layers, so that the same call goes on after a kill; None keeps
            nothing. It is not removed at the end.
        restart: Throw away unfinished work in it.
        trust_remote_code: Run code that the checkpoint brings along.
        progress: Called after each batch of each layer.
        notice: Called with a sentence on memory before the layers start, and one on time once it can be told.
        model_id: Name to record for the model.
        data_name: Name to record for the texts.

    Raises:
        CalibrationError: If a weight file is missing or damaged, the model cannot be streamed, the work
            folder holds a run with other settings, the disk is full, or as :func:`calibrate` says.
        EngineError: If the model has no routed experts or is of a family that is not supported.
        DataError: If the texts are empty or too short, or the tokenizer is another model's.

    """
    config = config or CalibrationConfig()
    run = _Run(
        Path(folder), config, torch.device(device), dtype, trust_remote_code, notice or (lambda _: None)
    )
    refuse_quantised(run.root, model_id, [layer.module for layer in run.found])
    ids = tokens(texts, tokenizer, config)
    check_vocabulary(ids, run.root.get_input_embeddings())
    if work is not None:
        Path(work).mkdir(parents=True, exist_ok=True)
        run.work = Work(Path(work), run.settings(ids))
        if restart and run.processes.rank == 0:
            forget(run.work.folder)
        run.processes.gathered(None)
    with torch.no_grad(), _meta_explained():
        run.go(ids, progress, model_id or str(folder))
    default = "the bundled sample" if texts is None else "a list of texts"
    return assemble(
        run.root, run.found, run.walk, config, ids, model_id, data_name or default, str(run.device)
    )


class _Run:
    """One streamed calibration."""

    def __init__(
        self,
        folder: Path,
        config: CalibrationConfig,
        device: torch.device,
        dtype: Any,
        trust: bool,
        notice: Callable[[str], None],
    ) -> None:
        from sere.engines.transformers import find_layers

        self.folder, self.config, self.device, self.notice = folder, config, device, notice
        self.dtype = str(dtype)
        found = quantisation(folder)
        packed_integers = found is not None and found["quant_method"] in PACKED
        self.shards = IntegerShards(folder, found) if found and packed_integers else Shards(folder)
        opened = open_model(folder, dtype=dtype, device=device, trust_remote_code=trust)
        self.root = opened.model
        self.found = find_layers(self.root)
        self.path, self.stages = decoder_layers(self.root, [layer.name for layer in self.found])
        self.weights = Weights(opened, self.shards)
        self.weights.check()
        self.processes = Processes()
        self.walk = Walk(self.found, config, lambda *_: None, self.processes.means)
        self.work: Work | None = None
        self.mapped = False
        self.relay = Relay(self.stages, self._keep)

    def settings(self, ids: Tensor) -> dict[str, Any]:
        """Everything that a bit of the result may depend on."""
        import transformers

        text = (self.folder / "config.json").read_bytes()
        return {
            "checkpoint": self.shards.identity(),
            "config": hashlib.sha256(text).hexdigest(),
            "texts": hashlib.sha256(ids.numpy().tobytes()).hexdigest(),
            "calibration": asdict(self.config),
            "dtype": self.dtype,
            "device": self.device.type,
            "threads": torch.get_num_threads(),
            "versions": [__version__, torch.__version__, transformers.__version__],
        }

    def go(self, ids: Tensor, progress: Callable[[Progress], None] | None, name: str) -> None:
        """Take all batches through all layers that are not finished."""
        batches = [rows.to(self.device) for rows in torch.split(ids, self.config.batch_sequences)]
        rounds = self.processes.rounds(len(batches))
        mine = [batch for batch in rounds if batch is not None]
        first = self.work.resume() if self.work else 0
        self._restore(first)
        outside = Outside(self.root, self.weights, self.path)
        if first < len(self.stages):
            with self.walk.hooked(), outside.hooked(), contextlib.closing(self.relay):
                first = self._start(batches, mine, first)
                self._announce(mine, outside, first)
                outside.drop()
                self._layers(first, rounds, mine, progress, name, ids.numel())
        self._all_met()

    def _start(self, batches: list[Tensor], mine: list[int], first: int) -> int:
        """Bring every batch to its first unfinished layer, and return which one that is."""
        body = getattr(self.root, "base_model", self.root)
        known = self.work.digests() if self.work and first else {}
        self.relay.open(first, partial(self._stored, first - 1))
        for batch in mine:
            self.relay.start(batch, partial(body, input_ids=batches[batch], use_cache=False))
            self._map_input(batch, len(mine))
        strange = [
            batch for batch in mine if known and known[str(batch)] != packed.digest(self.relay.inputs[batch])
        ]
        if not any(self.processes.gathered(bool(strange))):
            return first
        self.notice(
            "layers of this model hand on more than their outputs, so its finished layers have to run again"
        )
        self.relay.close()
        self._forget()
        return self._start(batches, mine, 0)

    def _layers(
        self,
        first: int,
        rounds: list[int | None],
        mine: list[int],
        progress: Callable[[Progress], None] | None,
        name: str,
        count: int,
    ) -> None:
        inside = [[each.name for each in self.found if self._within(each.name, stage)] for stage in self._all]
        clock = Clock([bool(names) for names in inside], len(rounds), self.config, first)
        for stage in range(first, len(self.stages)):
            if all(self.relay.place[batch] is None for batch in mine):
                return  # The list is longer than what the model runs.
            prefix = f"{self.path}.{stage}"
            started = time.monotonic()
            self.weights.load(prefix)
            clock.loaded(stage, time.monotonic() - started)
            for number, batch in enumerate(rounds):
                started = time.monotonic()
                if batch is None:
                    self._idle(inside[stage])
                else:
                    self.relay.advance(batch, stage)
                clock.ran(stage, time.monotonic() - started)
                clock.report(progress, stage, number, count, prefix)
                if inside[stage] and clock.due():
                    self.notice(clock.sentence(name))
            self.weights.free(prefix)
            self._finish(stage, inside[stage], mine)

    @property
    def _all(self) -> range:
        return range(len(self.stages))

    def _within(self, name: str, stage: int) -> bool:
        return name.startswith(f"{self.path}.{stage}.")

    def _idle(self, names: list[str]) -> None:
        """Take part in the sums of a round in which this process has no batch left."""
        for name in names:
            means = self.walk.means[name]
            if isinstance(means, SharedMeans):
                means.take(None)

    def _keep(self, stage: int, batch: int, output: Any) -> Any:
        if self.work is None or stage == len(self.stages) - 1:
            return output
        path = self.work.output(stage, batch)
        packed.write(path, output)
        return packed.read(path) if self.mapped else output

    def _stored(self, stage: int, batch: int) -> Any:
        assert self.work is not None  # noqa: S101 - layers are finished only in a work folder
        return packed.read(self.work.output(stage, batch), self.device)

    def _map_input(self, batch: int, count: int) -> None:
        """Move the hidden states that come out of the embedding into a file if there are many."""
        args, kwargs = self.relay.inputs[batch]
        states = next((each for each in (*args, *kwargs.values()) if _are_states(each)), None)
        if states is None or self.work is None or self.device.type != "cpu":
            return
        self.mapped = states.nbytes * count > memory.IN_MEMORY
        if self.mapped:
            path = self.work.folder / f"output-input-{batch:06d}.safetensors"
            packed.write(path, states)
            states.data = packed.read(path)

    def _announce(self, mine: list[int], outside: Outside, first: int) -> None:
        from sere.engines.transformers import describe

        prefixes = [f"{self.path}.{stage}" for stage in range(first, len(self.stages))]
        states = sum(packed.size(self.relay.inputs[batch]) for batch in mine)
        each = states // max(len(mine), 1)
        bound = memory.Bound(
            layer=max(map(self.weights.bytes, prefixes)),
            staging=max(map(self.weights.staging, prefixes)),
            outside=outside.most,
            states=3 * each if self.mapped else 2 * each + states,
            work=memory.work_bytes(self.found, self.config, describe(self.root).hidden_size),
            process=max(memory.process_bytes() - outside.most - states, 0),
            on_disk=2 * states if self.work else 0,
        )
        self.bound = bound
        if self.processes.rank == 0:
            self.notice(str(bound))

    def _finish(self, stage: int, names: list[str], mine: list[int]) -> None:
        if self.work is None:
            return
        own = {str(batch): packed.digest(self.relay.inputs.get(batch)) for batch in mine}
        everybodys = {key: value for each in self.processes.gathered(own) for key, value in each.items()}
        if self.processes.rank == 0:
            values = {name: _plain(self.walk.means[name]) for name in names}
            self.work.finish(stage, values, everybodys)
        self.processes.gathered(None)

    def _restore(self, finished: int) -> None:
        for stage in range(finished):
            assert self.work is not None  # noqa: S101 - layers are finished only in a work folder
            for name, values in packed.read(self.work.statistics(stage)).items():
                vars(self.walk.means[name]).update(values)

    def _forget(self) -> None:
        self.walk.means = {name: self.processes.means(self.config.batches) for name in self.walk.means}

    def _all_met(self) -> None:
        for name, means in self.walk.means.items():
            if means.batches != self.config.batches:
                raise CalibrationError(
                    f"layer {name} ran {means.batches} times on {self.config.batches} batches of text, so "
                    "this model cannot be calibrated. Report the model family."
                )


def _plain(means: Any) -> dict[str, Any]:
    return {key: value for key, value in vars(means).items() if not key.startswith("_")}


def _are_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim >= 3 and value.is_floating_point()


@contextlib.contextmanager
def _meta_explained() -> Iterator[None]:
    """Turn the errors of tensors without values into one that says what to do."""
    try:
        yield
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error):
            raise
        raise CalibrationError(
            "this model uses weights in a way that cannot be followed layer by layer "
            f"({str(error).splitlines()[0]}), so it cannot be streamed. Add --in-memory."
        ) from error
