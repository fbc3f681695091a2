"""The artifact: what calibration writes and every engine reads."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from sere.artifact import hub, reference, store
from sere.artifact.card import CardFacts
from sere.artifact.fields import check, similarity_from, source_field, tensor_name
from sere.artifact.schema import CalibrationRecord, LayerRecord, Manifest, ModelRecord, OperatingPoint
from sere.errors import ArtifactError, did_you_mean
from sere.routing import LayerStatistics


@dataclass(frozen=True, eq=False)
class Artifact:
    """Calibrated statistics of one model, immutable and validated.

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

    @classmethod
    def build(
        cls,
        model: ModelRecord,
        layers: tuple[LayerRecord, ...],
        statistics: Mapping[str, Mapping[str, Tensor]],
        metrics: tuple[str, ...],
        calibration: CalibrationRecord,
    ) -> Artifact:
        """Put an artifact together.

        Args:
            model: The model it belongs to.
            layers: Its layers, in model order.
            statistics: For every layer name, every stored field; the same fields everywhere.
            metrics: Similarities to serve; the first is the default.
            calibration: How the statistics came to be.

        """
        fields = tuple(statistics[layers[0].name]) if layers and layers[0].name in statistics else ()
        if not fields or not metrics:
            raise ArtifactError("an artifact needs a layer, its statistics and a metric. Calibrate a model.")
        tensors = {
            tensor_name(layer, field): value.detach().to("cpu", torch.float32, copy=True).contiguous()
            for layer, values in statistics.items()
            for field, value in values.items()
        }
        manifest = Manifest(
            model=model,
            layers=layers,
            fields=fields,
            metrics=metrics,
            default_metric=metrics[0],
            calibration=calibration,
        )
        return cls(manifest, tensors)

    @classmethod
    def from_pretrained(
        cls, path_or_repo_id: str | Path, *, revision: str | None = None, token: str | bool | None = None
    ) -> Artifact:
        """Load and validate an artifact from a local folder or from the Hub.

        Args:
            path_or_repo_id: Folder with ``sere.json`` (or that file), or ``owner/name`` on the Hub.
            revision: Branch, tag or commit on the Hub.
            token: Hub token; None takes the logged-in one.

        Raises:
            ArtifactError: If it is missing, truncated, foreign, of another version, or not usable.

        """
        if not isinstance(path_or_repo_id, (str, Path)):
            raise ArtifactError(
                f"an artifact is named by a folder or a repository, not by {type(path_or_repo_id).__name__}. "
                "Pass a string or a Path."
            )
        folder = hub.resolve(path_or_repo_id, revision=revision, token=token)
        return cls(*store.load(folder))

    @classmethod
    def from_reference(
        cls,
        path: str | Path,
        model: ModelRecord,
        layers: tuple[LayerRecord, ...],
        *,
        metric: str = "frobenius",
    ) -> Artifact:
        """Import a ``similarity_matrices.pt`` of the published code: ``{layer number: [E, E] tensor}``.

        The file is read without running any code in it. Published cosines are ``(cosine + 1) / 2``
        and are turned back.

        Args:
            path: The file.
            model: The model it was made for.
            layers: That model's mixture-of-experts layers; the file must hold all of them.
            metric: Which similarity the file holds.

        Raises:
            ArtifactError: If the file is unreadable, unsafe, or does not fit the layers.

        """
        matrices = reference.read(Path(path), layers, metric)
        statistics = {name: {metric: matrix} for name, matrix in matrices.items()}
        return cls.build(model, layers, statistics, (metric,), reference.record(Path(path)))

    @staticmethod
    def exists_in(folder: str | Path) -> bool:
        """Say whether ``folder`` holds a ``sere.json``."""
        return (Path(folder) / store.MANIFEST).is_file()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``sere.json``, ``sere.safetensors`` and a model card into ``folder``.

        Each file is written beside its place and then moved there; a pair torn by an interruption is
        refused on load. A README of someone else, such as the model's own, is left alone.

        Raises:
            ArtifactError: If the folder cannot be written, or holds a ``sere.*`` file that is no artifact.

        """
        store.save(self.manifest, self.tensors, hub.expand(folder))

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = False,
        token: str | bool | None = None,
        revision: str | None = None,
        license: str | None = None,  # noqa: A002 - the Hub's name
    ) -> str:
        """Upload to the Hub, into a new repository or beside a model's weights; return the commit's address.

        The model card is filled in: use in vLLM and Transformers, operating points with what was measured
        of them, calibration data, licence.

        Args:
            repo_id: ``owner/name``.
            private: Whether a new repository is private.
            token: Hub token; None takes the logged-in one.
            revision: Branch, made if need be.
            license: The artifact's licence as the Hub writes it, ``apache-2.0``; None leaves it out.

        Raises:
            ArtifactError: If the Hub refuses.

        """
        facts = CardFacts(repo_id, license)

        def save(folder: Path) -> None:
            store.save(self.manifest, self.tensors, folder, facts)

        return hub.push(save, repo_id, private=private, token=token, revision=revision)

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

    def with_operating_points(self, points: Mapping[str, OperatingPoint]) -> Artifact:
        """Return a copy with these operating points added."""
        merged = {**self.manifest.operating_points, **points}
        return Artifact(self.manifest.model_copy(update={"operating_points": merged}), self.tensors)

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
                f"{did_you_mean(field, self.manifest.fields)}"
            )
        return self.tensors[tensor_name(self.layer(layer_name).name, field)]

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
