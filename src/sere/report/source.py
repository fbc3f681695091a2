"""A record as the report sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sere.artifact import ModelRecord
from sere.report.blocks import Section
from sere.report.finding import Finding


@dataclass(frozen=True)
class Source:
    """One record, read.

    Attributes:
        name: File or folder name.
        kind: What it is, in words: ``comparison``.
        sha256: Hash of the file; of an artifact, its own hash.
        record: The parsed record.
        made: How it was made: heading to text.
        model: The model; None where it is a stand-in with random weights.
        stand_in: What a stand-in is, in words; empty for a model.
        artifact: Hash of the artifact that was used, None if none was or it is not known.
        findings: What was measured.
        facts: What else the opening sentence may say.

    """

    name: str
    kind: str
    sha256: str
    record: Any
    made: Mapping[str, str]
    model: ModelRecord | None = None
    stand_in: str = ""
    artifact: str | None = None
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Kind(Protocol):
    """A module of :mod:`sere.report.kinds`."""

    def sections(self, source: Source, letters: Mapping[str, str], /) -> list[Section]:
        """Draw its sections; ``letters`` are the policies' marks in pictures."""
        ...


class FileKind(Kind, Protocol):
    """A kind whose records are JSON files."""

    def recognises(self, raw: Mapping[str, Any], /) -> bool:
        """Say whether a JSON document is of this kind."""
        ...

    def read(self, text: str, name: str, sha256: str, /) -> Source:
        """Parse it; raises ValidationError, KeyError, TypeError or ValueError on a damaged one."""
        ...
