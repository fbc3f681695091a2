"""Find the list of decoder layers of a model, and keep the rest of its weights until they have been used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from sere.calibration.stream.weights import Weights
from sere.errors import CalibrationError


def decoder_layers(root: nn.Module, names: Sequence[str]) -> tuple[str, list[nn.Module]]:
    """Return the module path of the list that holds all MoE layers, and its members.

    Args:
        root: The model.
        names: Module paths of its MoE layers.

    Raises:
        CalibrationError: If there is no such list, or a member is in it twice.

    """
    path = ""
    for part in names[0].split("."):
        path = f"{path}.{part}" if path else part
        found = root.get_submodule(path)
        if isinstance(found, nn.ModuleList):
            members = list(found)
            within = all(name.startswith(f"{path}.") for name in names)
            if within and len({id(each) for each in members}) == len(members):
                return path, members
            break
    raise CalibrationError(
        f"the MoE layers of {type(root).__name__} do not lie in one list of decoder layers, so it cannot be "
        "streamed. Add --in-memory."
    )


class Outside:
    """Weights outside the decoder layers: read when the model first calls their module.

    Attributes:
        most: Most bytes of them that were held at once.

    """

    def __init__(self, root: nn.Module, weights: Weights, layers: str) -> None:
        self.weights, self.most = weights, 0
        self.held: set[str] = set()
        self.always: list[str] = []
        self.called: dict[str, nn.Module] = {}
        for name, module in root.named_modules():
            if name == layers or name.startswith(f"{layers}.") or not weights.names(name, own=True):
                continue
            if f"{layers}.".startswith(f"{name}." if name else ""):
                self.always.append(name)
            else:
                self.called[name] = module

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Load what is called while inside."""
        for name in self.always:
            self._load(name)
        handles = [module.register_forward_pre_hook(self._hook(name)) for name, module in self.called.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def drop(self) -> None:
        """Let go of what has been called so far; if it is called again, it is read again."""
        for name in [name for name in self.held if name not in self.always]:
            self.weights.free(name, own=True)
            self.held.remove(name)

    def _hook(self, name: str) -> Any:
        def hook(*_: Any) -> None:
            if name not in self.held:
                self._load(name)

        return hook

    def _load(self, name: str) -> None:
        self.weights.load(name, own=True)
        self.held.add(name)
        self.most = max(self.most, sum(self.weights.bytes(each, own=True) for each in self.held))
