"""Compile a kernel for a GPU that is not there, and read what it takes out of the result."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sere.kernels import BackfillOptions
from sere.kernels.gpu import Shape
from sere.kernels.gpu_filling import WARPS, constants

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
POINTERS = {
    "ids_ptr": "*i64",
    "new_ids_ptr": "*i64",
    "weights_ptr": "*bf16",
    "new_weights_ptr": "*bf16",
    "kinds_ptr": "*i32",
    "order_ptr": "*i16",
    "shares_ptr": "*i32",
    "scores_ptr": "*fp32",
    "likes_ptr": "*fp32",
    "total_ptr": "*fp32",
    "held_ptr": "*i32",
    "counts_ptr": "*i64",
}


@dataclass
class Cost:
    """What a compiled kernel takes.

    Attributes:
        registers: A thread's (vector registers on AMD).
        memory: Bytes a thread keeps in local (AMD: private) memory, stack and spills included.
        shared: Bytes of shared memory of a program.
        code: Bytes of instructions.
        scalar_moves: AMD only: scalar registers kept in vector registers; costs no memory.

    """

    registers: int
    memory: int
    shared: int
    code: int
    scalar_moves: int = 0


def constants_for(name: str, rows: int, top_k: int, experts: int) -> tuple[dict[str, Any], int]:
    """Compile-time arguments with every option on, and the warps."""
    if name == "backfill_kernel":
        flags = {"HAS_KINDS": True, "REDIRECT": True, "TOTAL": 2, "HELD": True, "ADD": True}
        return {**constants(top_k, experts, BackfillOptions()), **flags}, WARPS
    shape = Shape.of(rows, top_k, experts, -(-experts // 32) * 32)
    flags = {"HAS_KINDS": True, "EVERYONE": False, "MERGE": True, "REDIRECT": True, "ADD": True}
    return {**shape.constants(), **flags}, shape.warps


def compiled(kernel: Any, target: str, rows: int, top_k: int, experts: int) -> Cost:
    """Compile with every option on."""
    values, warps = constants_for(kernel.__name__, rows, top_k, experts)
    constants = {name: value for name, value in values.items() if name in kernel.arg_names}
    signature = {
        name: "constexpr" if name in constants else POINTERS.get(name, "i32") for name in kernel.arg_names
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    options = {"num_warps": warps, "enable_fp_fusion": False}
    made = triton.compile(source, target=TARGETS[target], options=options)
    return _amd(made) if target.startswith("gfx") else _nvidia(made)


def _nvidia(made: Any) -> Cost:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        use = _run(str(tool), "--dump-resource-usage", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", use)
    assert found, use
    registers, stack, local = map(int, found.groups())
    return Cost(registers, stack + local, made.metadata.shared, _text_bytes(made.asm["cubin"]))


def _amd(made: Any) -> Cost:
    text = made.asm["amdgcn"]

    def value(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", text)
        assert found, name
        return int(found[1])

    memory = value("private_segment_fixed_size") + 4 * value("vgpr_spill_count")
    code = _text_bytes(made.asm["hsaco"])
    return Cost(value("vgpr_count"), memory, made.metadata.shared, code, value("sgpr_spill_count"))


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _text_bytes(binary: bytes) -> int:
    """Bytes of the sections of code in a 64-bit little-endian ELF file."""
    word = lambda at, size: int.from_bytes(binary[at : at + size], "little")  # noqa: E731
    assert binary[:4] == b"\x7fELF"
    table, entry, count, names = word(0x28, 8), word(0x3A, 2), word(0x3C, 2), word(0x3E, 2)
    strings = word(table + names * entry + 0x18, 8)
    total = 0
    for index in range(count):
        at = table + index * entry
        start = strings + word(at, 4)
        if binary[start:].startswith(b".text"):
            total += word(at + 0x20, 8)
    return total
