"""A policy of its own for some of a model's layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sere.errors import PolicyError, RoutingError
from sere.routing.batch import RoutingBatch
from sere.routing.fill import Drop
from sere.routing.layer import LayerStatistics
from sere.routing.policy import Policy, Routes
from sere.routing.select import Everything
from sere.routing.weigh import Keep

_AS_ROUTED: Final = Policy("none", Everything(), Drop(), Keep())


@dataclass(frozen=True)
class PerLayer(Policy):
    """Policies by the number of the decoder layer.

    Whoever routes asks :meth:`of_layer` once for each layer; this one routes nothing by itself.

    Attributes:
        layers: Pairs of a decoder layer's number, from 0, and its policy; rising, each number once.
        rest: The policy of all other layers; it leaves them as routed by default.

    """

    layers: tuple[tuple[int, Policy], ...] = ()
    rest: Policy = _AS_ROUTED

    @classmethod
    def of(
        cls, layers: Iterable[tuple[int, Policy]], rest: Policy | None = None, name: str = "per_layer"
    ) -> PerLayer:
        """Put policies together.

        Args:
            layers: Pairs of a decoder layer's number and its policy, in any order.
            rest: The policy of all other layers; None leaves them as routed.
            name: Name of the whole.

        Raises:
            PolicyError: If there is none, a number is negative or given twice, a policy is itself by
                layers, or the phases differ.

        """
        pairs = tuple(sorted(layers, key=lambda pair: pair[0]))
        rest = _AS_ROUTED if rest is None else rest
        numbers = [number for number, _ in pairs]
        if not pairs:
            raise PolicyError("policies by layers need at least one layer. Give the policy alone otherwise.")
        if numbers[0] < 0 or len(set(numbers)) < len(numbers):
            raise PolicyError(f"layers are numbered from 0, each once, got {numbers}.")
        policies = [*(policy for _, policy in pairs), rest]
        if any(isinstance(policy, PerLayer) for policy in policies):
            raise PolicyError("policies by layers cannot be nested. Give each layer one policy.")
        phases = {policy.phase for policy in policies if policy.name != "none"}
        if len(phases) > 1:
            raise PolicyError("policies by layers must have one phase: write phase=decode or phase=all.")
        phase = phases.pop() if phases else "decode"
        return cls(name, Everything(), Drop(), Keep(), phase, layers=pairs, rest=rest)

    def of_layer(self, index: int) -> Policy:
        """Return the policy of decoder layer ``index``."""
        return dict(self.layers).get(index, self.rest)

    @property
    def policies(self) -> tuple[Policy, ...]:
        """All policies, that of the other layers last."""
        return (*(policy for _, policy in self.layers), self.rest)

    @property
    def requires(self) -> frozenset[str]:
        """What any of them requires."""
        return frozenset[str]().union(*(policy.requires for policy in self.policies))

    @property
    def needs(self) -> frozenset[str]:
        """What any of them needs."""
        return frozenset[str]().union(*(policy.needs for policy in self.policies))

    def inert(self, top_k: int) -> str | None:
        """When all of them are."""
        reasons = [policy.inert(top_k) for policy in self.policies]
        return reasons[0] if all(reasons) else None

    def route(self, batch: RoutingBatch, layer: LayerStatistics, redirect_padding: bool = False) -> Routes:
        """Refuse: a batch does not say which layer it is of.

        Raises:
            RoutingError: Always.

        """
        raise RoutingError(
            f"policy {self.name!r} has one policy for each layer. Call of_layer(number) and route with that."
        )


def numbers_of(text: str) -> Sequence[int]:
    """Read layer numbers, ``0-2+5`` for 0, 1, 2 and 5.

    Raises:
        PolicyError: If they have another form.

    """
    found: list[int] = []
    for part in text.split("+"):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        if not low.isdecimal() or (dash and not high.isdecimal()) or (dash and int(high) < int(low)):
            raise PolicyError(f"layers cannot be {text!r}. Write numbers and ranges, such as 0-2+5.")
        found += range(int(low), int(high if dash else low) + 1)
    return found
