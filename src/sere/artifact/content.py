"""What an artifact holds, by layer and by name: everything that reads it and changes nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sere.artifact.cost import CostModel
from sere.artifact.fields import check, how_to_get, similarity_from, source_field, tensor_name
from sere.artifact.schema import LayerRecord, Manifest, ModelRecord, OperatingPoint
from sere.errors import ArtifactError, did_you_mean
from sere.routing import LayerStatistics


@dataclass(frozen=True, eq=False)
class Content:
    """Manifest and numbers of an :class:`~sere.artifact.Artifact`, validated.

    Attributes:
        manifest: Everything but the numbers; what ``sere.json`` holds.
        tensors: The numbers by ``<layer name>.<field>``, float32 on the CPU; see ``docs/artifact.md``.

    Raises:
        ArtifactError: If the tensors are not those that the manifest promises, or not finite.

    """

    manifest: Manifest
    tensors: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        check(self.manifest, self.tensors)

    @property
    def model(self) -> ModelRecord:
        """The model it belongs to."""
        return self.manifest.model

    @property
    def layers(self) -> tuple[LayerRecord, ...]:
        """Mixture-of-experts layers, in model order."""
        return self.manifest.layers

    @property
    def metrics(self) -> tuple[str, ...]:
        """Similarities that :meth:`similarity` can serve."""
        return self.manifest.metrics

    @property
    def default_metric(self) -> str:
        """The similarity served when none is named."""
        return self.manifest.default_metric

    @property
    def operating_points(self) -> dict[str, OperatingPoint]:
        """Tuned policies by name."""
        return dict(self.manifest.operating_points)

    @property
    def costs(self) -> tuple[CostModel, ...]:
        """Cost models of the devices that were measured."""
        return self.manifest.costs

    def layer(self, name: str) -> LayerRecord:
        """Return the layer of this module path.

        Raises:
            ArtifactError: If there is none.

        """
        for layer in self.layers:
            if layer.name == name:
                return layer
        choices = did_you_mean(name, [layer.name for layer in self.layers])
        raise ArtifactError(f"the artifact of {self.model.id} has no layer {name!r}.{choices}")

    def layer_at(self, index: int) -> LayerRecord:
        """Return the layer of this decoder layer number.

        Raises:
            ArtifactError: If there is none.

        """
        for layer in self.layers:
            if layer.index == index:
                return layer
        known = ", ".join(str(layer.index) for layer in self.layers)
        raise ArtifactError(f"the artifact of {self.model.id} has no layer number {index}. It has: {known}.")

    def tensor(self, layer_name: str, field: str) -> Tensor:
        """Return a stored statistic of a layer, float32 on the CPU; do not change it in place.

        Raises:
            ArtifactError: If the layer or the field is not there.

        """
        if field not in self.manifest.fields:
            raise ArtifactError(
                f"the artifact of {self.model.id} stores no {field!r}."
                f"{how_to_get(field) or did_you_mean(field, self.manifest.fields)}"
            )
        return self.tensors[tensor_name(self.layer(layer_name).name, field)]

    def lacks(self, requires: frozenset[str]) -> tuple[str, ...]:
        """Name those of a policy's required statistics that this artifact does not hold, in order."""
        return tuple(sorted(requires - {"similarity"} - set(self.manifest.fields)))

    def similarity(self, layer_name: str, metric: str | None = None) -> Tensor:
        """Return the similarity of every pair of experts of a layer, shape [E, E], float32, CPU.

        Raises:
            ArtifactError: If the layer is unknown or the metric was not calibrated.

        """
        metric = metric or self.default_metric
        field = source_field(metric, self.manifest.fields) if metric in self.metrics else None
        if field is None:
            raise ArtifactError(
                f"the artifact of {self.model.id} cannot serve metric {metric!r}."
                f"{did_you_mean(metric, self.metrics)} Or calibrate again with that metric."
            )
        return similarity_from(field, self.tensor(layer_name, field))

    def statistics(
        self,
        layer_name: str,
        *,
        requires: frozenset[str],
        metric: str | None = None,
        device: torch.device | str | None = None,
    ) -> LayerStatistics:
        """Return what a policy needs to know of a layer, on ``device``; fields not required stay None.

        Raises:
            ArtifactError: If the layer, a required field or the metric is not there.

        """
        unknown = requires - {field.name for field in dataclasses.fields(LayerStatistics)}
        if unknown:
            raise ArtifactError(f"no artifact holds {sorted(unknown)}. Choose another policy or update sere.")
        self.layer(layer_name)
        found = {name: self.tensor(layer_name, name) for name in requires - {"similarity"}}
        if "similarity" in requires:
            found["similarity"] = self.similarity(layer_name, metric)
        return LayerStatistics(**{name: value.to(device) for name, value in found.items()})

    def check_model(self, record: ModelRecord) -> None:
        """See that this artifact belongs to a model of the routing shape of ``record``.

        Raises:
            ArtifactError: If architecture, width, or a layer's number, E or K differ.

        """
        if record.fingerprint != self.model.fingerprint:
            raise ArtifactError(
                f"this artifact was made for {_side(self.model)} and cannot serve {_side(record)}: their "
                "routing shapes differ. Calibrate the model that you serve, or name its own artifact."
            )

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all that can change routing: model, layers, metrics and every number."""
        shape = self.manifest.model_dump(
            mode="json", include={"format_version", "model", "layers", "fields", "metrics", "default_metric"}
        )
        digest = hashlib.sha256(json.dumps(shape, sort_keys=True).encode())
        for name in sorted(self.tensors):
            digest.update(name.encode())
            digest.update(self.tensors[name].contiguous().numpy().tobytes())
        return digest.hexdigest()


def _side(record: ModelRecord) -> str:
    width = f", hidden size {record.hidden_size}" if record.hidden_size else ""
    return (
        f"{record.id or 'a model without a name'} ({record.architecture}{width}, shape {record.fingerprint})"
    )
