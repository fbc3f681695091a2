"""Kinds of record that a report can show: one module each, and one line here."""

from __future__ import annotations

from sere.report.kinds import (
    comparison,
    cost_check,
    decode,
    demo,
    harness,
    profile,
    served,
    sweep,
    vllm_decode,
)
from sere.report.source import FileKind

KINDS: tuple[FileKind, ...] = (
    demo,
    comparison,
    harness,
    sweep,
    decode,
    served,
    vllm_decode,
    profile,
    cost_check,
)
"""Kinds told by their JSON; an artifact is a folder, see :mod:`sere.report.kinds.calibration`."""
