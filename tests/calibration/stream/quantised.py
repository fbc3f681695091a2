"""Small checkpoints in the formats that quantised models come in, made from a plain one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Parts = dict[str, Tensor]
BLOCK = 16


def rewritten(plain: Path, folder: Path, config: dict, make: Callable[[str, Tensor], Parts]) -> Path:
    """Copy a checkpoint; each matrix of a decoder layer but the router becomes what ``make`` gives."""
    folder.mkdir()
    result: Parts = {}
    for name, value in load_file(plain / "model.safetensors").items():
        linear = name.endswith("_proj.weight") and value.ndim == 2
        result.update(make(name.removesuffix(".weight"), value) if linear else {name: value})
    save_file(
        {name: value.contiguous() for name, value in result.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    whole = json.loads((plain / "config.json").read_text()) | {"quantization_config": config}
    (folder / "config.json").write_text(json.dumps(whole))
    return folder


def fp8_block(plain: Path, folder: Path) -> Path:
    """FP8 with one scale for each block of 16 x 16."""

    def make(name: str, value: Tensor) -> Parts:
        rows, columns = (length // BLOCK for length in value.shape)
        blocks = value.float().view(rows, BLOCK, columns, BLOCK)
        scale = blocks.abs().amax((1, 3)) / 448
        small = (blocks / scale[:, None, :, None]).view(value.shape).to(torch.float8_e4m3fn)
        return {f"{name}.weight": small, f"{name}.weight_scale_inv": scale}

    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
    return rewritten(plain, folder, config, make)


def fp8_tensor(plain: Path, folder: Path) -> Path:
    """FP8 with one scale for each tensor."""

    def make(name: str, value: Tensor) -> Parts:
        scale = value.float().abs().max() / 448
        return {
            f"{name}.weight": (value.float() / scale).to(torch.float8_e4m3fn),
            f"{name}.weight_scale_inv": scale,
        }

    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": None}
    return rewritten(plain, folder, config, make)


def compressed(bits: int, group: int | None) -> Callable[[Path, Path], Path]:
    """compressed-tensors, packed integers, by its own compressor."""

    def write(plain: Path, folder: Path) -> Path:
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

        arguments = {
            "num_bits": bits,
            "type": "int",
            "symmetric": True,
            "strategy": "group" if group else "channel",
            "group_size": group,
        }
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**arguments))
        compressor = BaseCompressor.get_value_from_registry("pack-quantized")

        def make(name: str, value: Tensor) -> Parts:
            grouped = value.float().view(value.shape[0], -1, group or value.shape[1])
            scale = grouped.abs().amax(2) / (2 ** (bits - 1) - 1)
            state = {"weight": value, "weight_scale": scale.to(value.dtype)}
            return {f"{name}.{key}": part for key, part in compressor.compress(state, scheme).items()}

        config = {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head", "re:.*mlp.gate$"],
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": arguments, "format": "pack-quantized"}
            },
        }
        return rewritten(plain, folder, config, make)

    return write


def mxfp4(plain: Path, folder: Path) -> Path:
    """MXFP4 as gpt-oss has it: experts in blocks of 32 values of 4 bits with one power of two."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    folder.mkdir()
    result: Parts = {}
    for name, value in load_file(plain / "model.safetensors").items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            result[name] = value
            continue
        rows = value.float().transpose(1, 2)
        blocks = rows.reshape(*rows.shape[:2], -1, 32)
        power = (blocks.abs().amax(3) / 6).clamp(min=2.0**-126).log2().ceil()
        codes = ((blocks / power.exp2()[..., None])[..., None] - table).abs().argmin(-1).to(torch.uint8)
        result[f"{name}_blocks"] = codes[..., ::2] | (codes[..., 1::2] << 4)
        result[f"{name}_scales"] = (power + 127).to(torch.uint8)
    save_file(
        {name: value.contiguous() for name, value in result.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    whole = json.loads((plain / "config.json").read_text()) | {"quantization_config": config}
    (folder / "config.json").write_text(json.dumps(whole))
    return folder


def gptq(plain: Path, folder: Path) -> Path:
    """GPTQ, 4 bits, groups of 16 inputs in a shuffled order, zeros stored less one."""

    def make(name: str, value: Tensor) -> Parts:
        outputs, inputs = value.shape
        groups = torch.randperm(inputs, generator=torch.Generator().manual_seed(0)) // BLOCK
        scales, zeros = torch.zeros(inputs // BLOCK, outputs), torch.zeros(inputs // BLOCK, outputs)
        codes = torch.zeros(inputs, outputs)
        for group in range(inputs // BLOCK):
            part = value.float()[:, groups == group].T
            codes[groups == group], scales[group], zeros[group] = _asymmetric(part)
        return {
            f"{name}.qweight": _packed(codes.T.contiguous(), range(8)).T,
            f"{name}.qzeros": _packed(zeros - 1, range(8)),
            f"{name}.scales": scales.half(),
            f"{name}.g_idx": groups.int(),
        }

    config = {"quant_method": "gptq", "bits": 4, "group_size": BLOCK, "desc_act": True, "sym": False}
    return rewritten(plain, folder, config, make)


def awq(plain: Path, folder: Path) -> Path:
    """AWQ, 4 bits, groups of 16 inputs; eight outputs share an integer in an order of their own."""

    def make(name: str, value: Tensor) -> Parts:
        outputs, inputs = value.shape
        parts = value.float().T.view(inputs // BLOCK, BLOCK, outputs)
        codes, scales, zeros = zip(*map(_asymmetric, parts), strict=True)
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        return {
            f"{name}.qweight": _packed(torch.cat(codes), order),
            f"{name}.qzeros": _packed(torch.stack(zeros), order),
            f"{name}.scales": torch.stack(scales).half(),
        }

    config = {"quant_method": "awq", "bits": 4, "group_size": BLOCK, "version": "gemm", "zero_point": True}
    return rewritten(plain, folder, config, make)


def _asymmetric(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of [I, O] with one scale and zero, between 1 and 15, for each column."""
    low, high = values.amin(0).clamp(max=-1e-6), values.amax(0).clamp(min=1e-6)
    scale = ((high - low) / 14).half().float()
    zero = (-low / scale).round().clamp(1, 15)
    return (values / scale + zero).round().clamp(0, 15), scale, zero


def _packed(codes: Tensor, order: Iterable[int]) -> Tensor:
    """Pack eight neighbours of a row into one int32, the n-th of ``order`` at bit 4 n."""
    total = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
    for place, member in enumerate(order):
        total |= codes[:, member::8].long() << (4 * place)
    return torch.where(total >= 2**31, total - 2**32, total).int()
