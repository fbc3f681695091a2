"""The artifact: what calibration writes and every engine reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sere.artifact import hub, reference, store
from sere.artifact.card import CardFacts
from sere.artifact.content import Content
from sere.artifact.cost import CostModel
from sere.artifact.fields import tensor_name
from sere.artifact.schema import CalibrationRecord, LayerRecord, Manifest, ModelRecord, OperatingPoint
from sere.errors import ArtifactError


@dataclass(frozen=True, eq=False)
class Artifact(Content):
    """Calibrated statistics of one model, immutable and validated.

    Attributes:
        manifest: Everything but the numbers; what ``sere.json`` holds.
        tensors: The numbers by ``<layer name>.<field>``, float32 on the CPU; see ``docs/artifact.md``.

    Raises:
        ArtifactError: If the tensors are not those that the manifest promises, or not finite.

    """

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

    def with_operating_points(self, points: Mapping[str, OperatingPoint]) -> Artifact:
        """Return a copy with these operating points added."""
        merged = {**self.manifest.operating_points, **points}
        return Artifact(self.manifest.model_copy(update={"operating_points": merged}), self.tensors)

    def with_cost(self, cost: CostModel) -> Artifact:
        """Return a copy with this cost model, in place of one of the same device and type."""
        others = tuple(known for known in self.manifest.costs if known.place != cost.place)
        return Artifact(self.manifest.model_copy(update={"costs": (*others, cost)}), self.tensors)

    def without_operating_points(self, names: Iterable[str]) -> Artifact:
        """Return a copy without the operating points of these names, where there are any."""
        gone = set(names)
        kept = {name: point for name, point in self.operating_points.items() if name not in gone}
        return Artifact(self.manifest.model_copy(update={"operating_points": kept}), self.tensors)
