"""Read the packed integers of GPTQ and AWQ checkpoints as the plain matrices they stand for.

Their usual readers build kernels for a GPU and leave the weights packed. What is stored is simple, for an
input i of group g and an output o: ``weight[o, i] = scale[g, o] * (code[i, o] - zero[g, o])``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sere.calibration.stream.shards import Shards
from sere.errors import CalibrationError

PACKED = ("gptq", "awq")
"""Quantisation methods read here."""
_PARTS = ("qweight", "qzeros", "scales", "g_idx")


class IntegerShards(Shards):
    """A checkpoint of packed integers that shows a plain ``weight`` in place of each packed module.

    Args:
        folder: The checkpoint's folder.
        settings: ``quantization_config`` of its configuration.

    Raises:
        CalibrationError: As :class:`Shards`, or if it is packed in a way that is not known.

    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(folder)
        self.settings = settings
        bits, version = int(settings.get("bits") or 0), str(settings.get("version", "gemm")).lower()
        known = (4,) if settings["quant_method"] == "awq" else (2, 4, 8)
        if bits not in known or version != "gemm":
            raise CalibrationError(
                f"{folder} is quantised ({settings['quant_method']}) to {bits} bits in the form {version!r}, "
                "which cannot be read. Calibrate the unquantised checkpoint, and serve this one with its "
                "artifact."
            )
        self.modules: dict[str, dict[str, str]] = {}
        for name in [name for name in self.where if name.endswith(".qweight")]:
            module = name.removesuffix(".qweight")
            parts = {part: f"{module}.{part}" for part in _PARTS if f"{module}.{part}" in self.where}
            if {"qzeros", "scales"} - set(parts):
                raise CalibrationError(f"{folder} has {name} without its zeros and scales. Copy it again.")
            target = f"{module}.weight"
            self.modules[target] = parts
            # Four bytes for each code while it is unpacked.
            self.sizes[target] = sum(self.sizes[part] for part in parts.values()) * 32 // bits

    @property
    def names(self) -> list[str]:
        """Tensor names as they are shown."""
        hidden = {part for parts in self.modules.values() for part in parts.values()}
        return [*(name for name in self.where if name not in hidden), *self.modules]

    @contextlib.contextmanager
    def slices(self, names: Iterable[str], *, mapped: bool) -> Iterator[dict[str, Any]]:
        """Give lazy tensors by name, as :meth:`Shards.slices`; packed ones are unpacked when read."""
        wanted = list(names)
        plain = [name for name in wanted if name not in self.modules]
        parts = [part for name in wanted for part in self.modules.get(name, {}).values()]
        with super().slices([*plain, *parts], mapped=mapped) as found:
            yield {
                name: found[name]
                if name not in self.modules
                else _Unpacked({part: found[key] for part, key in self.modules[name].items()}, self.settings)
                for name in wanted
            }


class _Unpacked:
    """A packed module that reads like a slice of a safetensors file."""

    def __init__(self, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self.parts, self.settings = parts, settings

    def get_shape(self) -> list[int]:
        """Return [O, I]."""
        rows, columns = self.parts["qweight"].get_shape()
        factor = 32 // int(self.settings["bits"])
        if self.settings["quant_method"] == "awq":
            return [columns * factor, rows]
        return [columns, rows * factor]

    def get_dtype(self) -> str:
        """Return the type of the scales, as safetensors names it."""
        return str(self.parts["scales"].get_dtype())

    def __getitem__(self, place: Any) -> Tensor:
        parts = {name: part[...] for name, part in self.parts.items()}
        weight = awq(parts) if self.settings["quant_method"] == "awq" else gptq(parts, self.settings)
        return weight[place]


def gptq(parts: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Tensor:
    """Unpack a GPTQ module.

    Args:
        parts: ``qweight`` int32 [I * bits / 32, O], ``qzeros`` int32 [G, O * bits / 32], ``scales`` [G, O]
            and perhaps ``g_idx`` [I]: the group of each input.
        settings: ``bits``, ``group_size``, and ``checkpoint_format``: of ``gptq``, the first one, zeros are
            stored less one.

    Returns:
        The weight, shape [O, I], in the type of the scales.

    """
    bits = int(settings["bits"])
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    mask = 2**bits - 1
    codes = (parts["qweight"].unsqueeze(1) >> shifts[:, None]) & mask
    codes = codes.reshape(-1, parts["qweight"].shape[1])
    zeros = ((parts["qzeros"].unsqueeze(2) >> shifts) & mask).reshape(parts["qzeros"].shape[0], -1)
    if settings.get("checkpoint_format", "gptq") == "gptq":
        zeros = (zeros + 1) & mask
    scales = parts["scales"]
    groups = parts.get("g_idx")
    if groups is None:
        groups = torch.arange(codes.shape[0]) // (codes.shape[0] // scales.shape[0])
    groups = groups.long()
    weight: Tensor = scales[groups] * (codes - zeros[groups]).to(scales.dtype)
    return weight.T.contiguous()


def awq(parts: Mapping[str, Tensor]) -> Tensor:
    """Unpack an AWQ module of 4 bits through compressed-tensors.

    Args:
        parts: ``qweight`` int32 [I, O / 8], ``qzeros`` int32 [G, O / 8], ``scales`` [G, O].

    Returns:
        The weight, shape [O, I], in the type of the scales.

    """
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.entrypoints.convert.converters import AutoAWQConverter
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    group = parts["qweight"].shape[0] // parts["scales"].shape[0]
    converter = AutoAWQConverter(bits=4, group_size=group)
    state = converter.process({f"module.{name}": part for name, part in parts.items()})
    arguments = QuantizationArgs(num_bits=4, symmetric=False, strategy="group", group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    compressor: Any = BaseCompressor.get_value_from_registry("pack-quantized")
    weight: Tensor = compressor.decompress(
        {name.removeprefix("module."): value for name, value in state.items()}, scheme
    )["weight"]
    return weight
