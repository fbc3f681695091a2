"""The handle of a policy that is applied to a model: counters, banner, removal."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn

import torch
from torch import nn

from sere.artifact import Artifact
from sere.engines.transformers.counters import RunCounters
from sere.engines.transformers.decoding import follow, unfollow
from sere.engines.transformers.hooks import Ran, Steps, experts_hook, router_hook, step_hooks
from sere.engines.transformers.layers import Survey
from sere.engines.transformers.rerouting import Rerouting
from sere.errors import EngineError
from sere.routing import Policy

MARK: Final = "_sere_handle"
"""Attribute of a module that is under a handle."""


@dataclass(eq=False)
class Handle:
    """A policy at work in a model. Made by :func:`sere.apply` or :func:`sere.rerouted`.

    Attributes:
        model: The model, without ``torch.compile``'s wrapper.
        survey: Its layers.
        policy: The policy.
        label: The policy as it was given.
        artifact: The artifact, or None.
        notes: Warnings about this combination, also in the banner.

    """

    model: nn.Module
    survey: Survey
    policy: Policy
    label: str
    artifact: Artifact | None
    reroutings: tuple[Rerouting, ...]
    notes: tuple[str, ...] = ()
    _steps: Steps = field(default_factory=Steps)
    _ran: Ran = field(default_factory=Ran)
    _undo: list[Callable[[], Any]] = field(default_factory=list)

    @property
    def applied(self) -> bool:
        """Whether the hooks are in place."""
        return bool(self._undo)

    def counters(self) -> RunCounters:
        """Read the counters; this waits for the device.

        Raises:
            EngineError: If the policy was applied with ``counting=False``.

        """
        tables = {each.layer.name: each.table for each in self.reroutings if each.table is not None}
        if not tables:
            raise EngineError("nothing was counted. Apply the policy with counting=True.")
        guarded = {each.layer.name: each.guarded for each in self.reroutings if each.guarded is not None}
        return RunCounters.read(tables, guarded)

    def reset(self) -> None:
        """Set all counters to zero."""
        for each in self.reroutings:
            for counter in (each.table, each.guarded):
                if counter is not None:
                    counter.zero_()

    def banner(self) -> str:
        """Say which layers are re-routed, which not and why, by which policy and artifact."""
        layers = [each.layer for each in self.reroutings]
        shapes = sorted({f"top-{layer.top_k} of {layer.num_experts}" for layer in layers})
        source = f"{self.artifact.model.id} ({self.artifact.hash[:12]})" if self.artifact else "none"
        lines = [
            f"sere: {self.label} in {type(self.model).__name__}",
            f"  re-routed: {len(layers)} layers ({', '.join(shapes)}), {layers[0].name} to {layers[-1].name}",
            *(f"  not re-routed: {name}: {reason}" for name, reason in self.survey.skipped.items()),
            f"  phase: {self.policy.phase}; artifact: {source}",
            *(f"  guard: {guard}" for guard in {each.guard for each in self.reroutings} if guard is not None),
            *(f"  note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)

    def owners(self) -> tuple[nn.Module, ...]:
        """List the model and its experts modules; each knows the one handle that it is under."""
        return self.model, *(layer.module for layer in self.survey.layers)

    def install(self) -> None:
        """Put the hooks in place; if that fails, none of them stays."""
        try:
            self._install()
        except BaseException:
            self.remove()
            raise

    def _install(self) -> None:
        for owner in self.owners():
            self._put(owner, MARK, self)
        for hooked in {*self.owners(), *self.survey.models}:
            # Copying and pickling look for this name on the object itself.
            self._put(hooked, "__reduce_ex__", _refuse_copy)
        for model in self.survey.models:
            before, after = step_hooks(model, self._steps, self._ran)
            self._keep(model.register_forward_pre_hook(before, with_kwargs=True))
            self._keep(model.register_forward_hook(after, always_call=True))
            follow(model, lambda: self._steps.current.generation)
            self._undo.append(partial(unfollow, model))
        for each in self.reroutings:
            hook = experts_hook(each, self._steps)
            self._keep(each.layer.module.register_forward_pre_hook(hook, with_kwargs=True))
            if each.source is not None:
                self._keep(
                    each.source.module.register_forward_hook(router_hook(each, each.source, self._steps))
                )
        forget_compiled()

    def remove(self) -> None:
        """Take the hooks off; the model is what it was before. Does nothing the second time."""
        if not self._undo:
            return
        while self._undo:
            self._undo.pop()()
        self._steps = Steps()  # with it goes what routers left behind
        forget_compiled()
        if self._ran.model and not any(each.called for each in self.reroutings):
            warnings.warn(
                "sere: the model ran, but none of its experts modules did, so nothing was re-routed. A "
                "kernel or a replaced block runs instead of them; load the model with use_kernels=False.",
                RuntimeWarning,
                stacklevel=3,
            )

    def _put(self, module: nn.Module, name: str, value: object) -> None:
        module.__dict__[name] = value
        self._undo.append(partial(module.__dict__.pop, name))

    def _keep(self, handle: torch.utils.hooks.RemovableHandle) -> None:
        self._undo.append(handle.remove)


def _refuse_copy(_protocol: object) -> NoReturn:
    raise EngineError(
        "a model under a policy can be neither copied nor pickled: the copy's hooks would be those of the "
        "original. Leave the block or call sere.remove(model) first; save_pretrained works at any time."
    )


def forget_compiled() -> None:
    """Drop code that ``torch.compile`` made: it holds the hooks of its time, or has none.

    Dynamo does not guard on hooks, so without this a model compiled before would silently go on as
    it was. All compiled code of the process is dropped, and compiled again when it is next called.
    """
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
