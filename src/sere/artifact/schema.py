"""What ``sere.json`` holds, as pydantic models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from sere.artifact.cost import CostModel
from sere.provenance import Provenance

FORMAT = "sere"
FORMAT_VERSION: Literal[1] = 1
"""Version that this library writes; it reads no other."""

Count = Annotated[int, Field(ge=1)]


class Record(BaseModel):
    """Base of all parts of the manifest: immutable, nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LayerRecord(Record):
    """One mixture-of-experts layer.

    Attributes:
        name: Module path of the experts module in Transformers, ``model.layers.3.mlp.experts``.
        index: Number of the decoder layer it lies in, from 0.
        num_experts: E, routed experts.
        top_k: K, slots of a row.

    """

    name: Annotated[str, Field(min_length=1)]
    index: Annotated[int, Field(ge=0)]
    num_experts: Count
    top_k: Count


class ModelRecord(Record):
    """The model that an artifact belongs to.

    Attributes:
        id: Hub id or folder that it was loaded from, as the user gave it.
        revision: Commit or branch, if known.
        architecture: ``model_type`` of its configuration, such as ``qwen3_moe``.
        hidden_size: Width of the experts' inputs and outputs; 0 where unknown.
        fingerprint: Hash of the routing shape, see :func:`fingerprint`. Two models that differ in it
            cannot share an artifact.

    """

    id: str
    revision: str | None = None
    architecture: str
    hidden_size: Annotated[int, Field(ge=0)] = 0
    fingerprint: str

    @classmethod
    def describe(
        cls,
        *,
        id: str,  # noqa: A002 - the field's name
        architecture: str,
        hidden_size: int,
        layers: Iterable[LayerRecord],
        revision: str | None = None,
    ) -> ModelRecord:
        """Build the record, with the fingerprint computed from the shape."""
        shape = fingerprint(architecture, hidden_size, layers)
        return cls(
            id=id, revision=revision, architecture=architecture, hidden_size=hidden_size, fingerprint=shape
        )


def fingerprint(architecture: str, hidden_size: int, layers: Iterable[LayerRecord]) -> str:
    """Hash of a model's routing shape: 16 hexadecimal digits of a SHA-256.

    Args:
        architecture: ``model_type`` of the configuration.
        hidden_size: Width of the experts' inputs and outputs.
        layers: Its mixture-of-experts layers, in any order; only index, E and K count, so that engines
            with other module names get the same hash.

    """
    shape = sorted((layer.index, layer.num_experts, layer.top_k) for layer in layers)
    text = json.dumps([architecture, hidden_size, shape])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class CalibrationRecord(Record):
    """How the statistics came to be.

    Attributes:
        source: ``calibrated`` by this library, or imported from a ``reference`` file.
        data: Name of the texts.
        data_sha256: Hash of the token ids, in order; None for an import.
        sequences: Sequences used.
        sequence_length: Tokens of each.
        tokens: Tokens used in all.
        batch_sequences: Sequences of a batch; similarities are means over batches.
        batches: Batches used.
        seed: Seed of the order of the sequences.
        dtype: Floating type in which the model ran.
        sere_version: Version of this library.
        provenance: The run; None for an import, and in artifacts of versions that kept none.

    """

    source: Literal["calibrated", "reference"] = "calibrated"
    data: str
    data_sha256: str | None = None
    sequences: Annotated[int, Field(ge=0)] = 0
    sequence_length: Annotated[int, Field(ge=0)] = 0
    tokens: Annotated[int, Field(ge=0)] = 0
    batch_sequences: Annotated[int, Field(ge=0)] = 0
    batches: Annotated[int, Field(ge=0)] = 0
    seed: int | None = None
    dtype: str | None = None
    sere_version: str
    provenance: Provenance | None = None


class OperatingPoint(BaseModel):
    """A named, tuned policy: its short form, and whatever its tuner wants to remember.

    Attributes:
        policy: Short form; may hold several policies by rows, ``oea:top_s=3@4|oea:top_s=2@16``.
        metric: Similarity to serve; None means the artifact's default.
        guard: Least and most rows of a step for which it pays on the device that it was tuned for; None if
            that is not known. Engines use it when they are told so.

    """

    model_config = ConfigDict(frozen=True, extra="allow")

    policy: str
    metric: str | None = None
    guard: tuple[int, int | None] | None = None


class Manifest(Record):
    """All of ``sere.json``.

    Attributes:
        format: Always ``sere``.
        format_version: Version of the format, 1.
        tensors_sha256: Hash of the bytes of ``sere.safetensors`` that was saved with this file.
        model: The model it belongs to.
        layers: Its mixture-of-experts layers, in model order.
        fields: Statistics stored for every layer; the tensor of a layer and field is called
            ``<layer name>.<field>``.
        metrics: Similarities that can be served; each is stored or follows from a stored field.
        default_metric: The one served when none is named.
        calibration: How the statistics came to be.
        operating_points: Tuned policies by name.
        costs: What a decoding step costs, one entry for each device and floating type that was measured.

    """

    format: Literal["sere"] = "sere"
    format_version: Literal[1] = FORMAT_VERSION
    tensors_sha256: str = ""
    model: ModelRecord
    layers: Annotated[tuple[LayerRecord, ...], Field(min_length=1)]
    fields: Annotated[tuple[str, ...], Field(min_length=1)]
    metrics: Annotated[tuple[str, ...], Field(min_length=1)]
    default_metric: str
    calibration: CalibrationRecord
    operating_points: dict[str, OperatingPoint] = {}
    costs: tuple[CostModel, ...] = ()
