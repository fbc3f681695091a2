"""Load a part of a model's weights through Transformers' own mapping, and let go of it again."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn

from sere.calibration.stream.fused import fuse, plans
from sere.calibration.stream.opening import Opened
from sere.calibration.stream.shards import Shards
from sere.errors import CalibrationError

_MOST_NAMED = 3


class Weights:
    """Weights of a model on the meta device, loaded and freed by part.

    Attributes:
        sources: Checkpoint names by the model's name for them; several where Transformers fuses, and under
            the first of its targets where it splits.

    """

    def __init__(self, opened: Opened, shards: Shards) -> None:
        self.model, self.loading, self.shards = opened.model, opened.loading, shards
        self.wanted: dict[str, Any] = self.model.state_dict()
        self.tied: dict[str, str] = dict(getattr(self.model, "all_tied_weights_keys", None) or {})
        self.sources: dict[str, list[tuple[str, str | None]]] = {}
        for key in sorted(shards.names, key=_natural):
            target, pattern = self._renamed(key)
            self.sources.setdefault(target, []).append((key, pattern))

    def _renamed(self, key: str) -> tuple[str, str | None]:
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

        mapping = self.loading.weight_mapping or []
        renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
        converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
        prefix = self.model.base_model_prefix
        renamed: tuple[str, str | None] = rename_source_key(key, renamings, converters, prefix, self.wanted)
        if renamed[0] not in self.wanted and key in self.wanted:
            renamed = rename_source_key(key, [], [], prefix, self.wanted)
        return renamed

    def load(self, prefix: str, *, own: bool = False) -> None:
        """Give values to all tensors under the module path ``prefix``, or with ``own`` to its own only.

        Raises:
            CalibrationError: If the checkpoint lacks one, or holds it in another shape.

        """
        targets = [target for target in self.sources if _under(target, prefix, own)]
        fused = {plan.target: plan for plan in plans(self, targets)}
        for plan in fused.values():
            with self.shards.slices(plan.keys, mapped=False) as slices:
                fuse(self, plan, slices)
        rest = [target for target in targets if target not in fused]
        made = [target for target in rest if self._converted(target)]
        for group in [*([target] for target in made), [target for target in rest if target not in made]]:
            self._convert(key for target in group for key, _ in self.sources[target])
        self._tie(prefix, own)
        self._require(prefix, own)

    def _converted(self, target: str) -> bool:
        return any(pattern is not None for _, pattern in self.sources[target])

    def _convert(self, keys: Iterable[str]) -> None:
        """Let Transformers rename, convert and dequantise some of the checkpoint's tensors."""
        from transformers.core_model_loading import convert_and_load_state_dict_in_model

        with self.shards.slices(keys, mapped=True) as slices, _quietly_one_by_one():
            if not slices:
                return
            report, _ = convert_and_load_state_dict_in_model(
                model=self.model, state_dict=slices, load_config=self.loading, disk_offload_index=None
            )
        if report.mismatched_keys:
            name, found, expected = sorted(report.mismatched_keys)[0]
            raise CalibrationError(
                f"{name} has shape {tuple(found)} in the checkpoint and {tuple(expected)} in the model. "
                "Get a checkpoint whose config.json belongs to its weights."
            )
        if report.conversion_errors:
            name, reason = next(iter(report.conversion_errors.items()))
            last = str(reason).strip().splitlines()[-1]
            raise CalibrationError(f"{name} cannot be made from the checkpoint: {last}. Add --in-memory.")

    def check(self) -> None:
        """See, before any work, that the checkpoint holds every weight of the model.

        Raises:
            CalibrationError: If not; Transformers would fill the place with random numbers.

        """
        from transformers.core_model_loading import WeightConverter

        made = [
            pattern.replace(".", r"\.").replace("*", ".*")
            for entry in self.loading.weight_mapping or []
            if isinstance(entry, WeightConverter)
            for pattern in entry.target_patterns
        ]
        several = re.compile("|".join(made) or "(?!)")
        tied = {*self.tied, *self.tied.values()}
        lost = [name for name in self.wanted if name not in self.sources and self._exists(name)]
        lost = [name for name in lost if name not in tied and not several.search(name)]
        if lost:
            named = ", ".join(lost[:_MOST_NAMED]) + (", ..." if len(lost) > _MOST_NAMED else "")
            raise CalibrationError(
                f"{self.shards.folder} lacks {len(lost)} of the weights of its architecture ({named}). Get "
                "the whole checkpoint."
            )

    def _tie(self, prefix: str, own: bool) -> None:
        """Take a tensor that is only stored under the name that it is tied to from there."""
        pairs = {**self.tied, **{source: target for target, source in self.tied.items()}}
        for name in [name for name in self.names(prefix, own) if self._at(name).is_meta and name in pairs]:
            twin = pairs[name]
            if self._at(twin).is_meta and twin in self.sources:
                self._convert(key for key, _ in self.sources[twin])
            owner, _, last = name.rpartition(".")
            if not self._at(twin).is_meta:
                setattr(self.model.get_submodule(owner), last, self._at(twin))
                if not _under(twin, prefix, own):
                    self._to_meta(twin)

    def _require(self, prefix: str, own: bool) -> None:
        lost = [name for name in self.names(prefix, own) if self._at(name).is_meta]
        if lost:
            raise CalibrationError(
                f"{self.shards.folder} lacks {len(lost)} of the weights of {prefix or 'the model'} "
                f"({lost[0]}). Get the whole checkpoint; if it is whole, add --in-memory."
            )

    def free(self, prefix: str, *, own: bool = False) -> None:
        """Put all tensors that :meth:`load` loads back on the meta device."""
        for name in self.names(prefix, own):
            self._to_meta(name)

    def names(self, prefix: str, own: bool = False) -> list[str]:
        """Names of the stored tensors under ``prefix``."""
        return [name for name in self.wanted if _under(name, prefix, own) and self._exists(name)]

    def bytes(self, prefix: str, *, own: bool = False) -> int:
        """Bytes of the tensors under ``prefix`` once they are loaded."""
        return sum(self.wanted[name].nbytes for name in self.names(prefix, own))

    def staging(self, prefix: str) -> int:
        """Most bytes that making one tensor under ``prefix`` needs beside the tensor itself."""
        targets = [target for target in self.sources if _under(target, prefix, False)]
        fused = {plan.target for plan in plans(self, targets)}
        most = cast = 0
        for target in targets:
            sizes = [self.shards.sizes[key] for key, _ in self.sources[target]]
            whole = self.wanted[target].nbytes if target in self.wanted else 0
            if target in fused:
                most = max(most, *sizes)
            elif self._converted(target):
                most = max(most, sum(sizes) + 2 * whole)
            elif sum(sizes) != whole:
                cast += sum(sizes)
        return max(most, cast)

    def _exists(self, name: str) -> bool:
        return isinstance(self.wanted[name], torch.Tensor)

    def _at(self, name: str) -> torch.Tensor:
        owner, _, last = name.rpartition(".")
        found: torch.Tensor = getattr(self.model.get_submodule(owner), last)
        return found

    def _to_meta(self, name: str) -> None:
        owner, _, last = name.rpartition(".")
        module: nn.Module = self.model.get_submodule(owner)
        value = self._at(name)
        empty = torch.empty_like(value, device="meta")
        if last in module._parameters:
            module._parameters[last] = nn.Parameter(empty, requires_grad=False)
        else:
            module._buffers[last] = empty


@contextlib.contextmanager
def _quietly_one_by_one() -> Iterator[None]:
    """No progress bar, and no threads that read ahead of what memory allows."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with mock.patch.dict(os.environ, {"HF_DEACTIVATE_ASYNC_LOAD": "1"}):
            yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _under(name: str, prefix: str, own: bool) -> bool:
    if own:
        return name.rpartition(".")[0] == prefix
    return name.startswith(f"{prefix}.") if prefix else True


def _natural(name: str) -> Any:
    from transformers.core_model_loading import dot_natural_key

    return dot_natural_key(name)
