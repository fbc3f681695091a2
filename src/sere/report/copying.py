"""Settings to copy into an engine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from sere.artifact import OperatingPoint
from sere.artifact.card import measured
from sere.errors import PolicyError
from sere.report.blocks import Block, Code, Section, Table, Text
from sere.routing import parse_policy

ARTIFACT = "DIR"
NO_FORM = (
    "It is an experiment's own combination: no engine takes it by name. See the record's "
    "command for how it is built."
)
MODEL = "MODEL"


def snippets(
    policy: str, *, model: str = MODEL, artifact: str = ARTIFACT, metric: str | None = None
) -> list[Code]:
    """Show how to use a policy in vLLM and in Transformers.

    Args:
        policy: Short form.
        model: Name or folder of the model.
        artifact: Name or folder of the artifact.
        metric: Similarity to serve; None for the artifact's default.

    """
    settings = {"artifact": artifact, "policy": policy} | ({} if metric is None else {"metric": metric})
    option = shlex.quote(json.dumps({"sere": settings}))
    named = "" if metric is None else f", metric={metric!r}"
    return [
        Code("vLLM", f"vllm serve {shlex.quote(model)} --additional-config {option}"),
        Code("the proof that a running server re-routes", "sere doctor --url http://localhost:8000"),
        Code(
            "Transformers",
            f'import sere\n\nwith sere.rerouted(model, "{artifact}", "{policy}"{named}) as handle:\n'
            "    model.generate(**batch, max_new_tokens=64)\n    print(handle.banner())",
        ),
    ]


def section(policy: str | None, points: Mapping[str, OperatingPoint]) -> Section:
    """Put the page's policy and the artifact's operating points together.

    Args:
        policy: Policy of the opening sentence; None if there is none.
        points: Operating points of an artifact by name.

    """
    place = Text(f"Put the model in place of {MODEL} and the artifact's folder in place of {ARTIFACT}.")
    blocks: list[Block] = []
    if policy is not None:
        blocks.append(Text(f"The setting of the opening sentence: {policy}"))
        blocks += snippets(policy) if _has_short_form(policy) else [Text(NO_FORM)]
    if points:
        rows = [
            [name, point.policy, point.metric or "default", measured(point)] for name, point in points.items()
        ]
        columns = ["name", "policy", "similarity", "measured"]
        first = next(iter(points))
        blocks += [
            Table("Operating points of the artifact", columns, rows, code=True, prose=True),
            Text(f"An operating point is called by its name: {first}"),
            *snippets(first),
        ]
    nothing = Text("No policy was measured. Start with sere:top_s=2 and compare: sere compare MODEL DIR.")
    return Section("settings", "Settings to copy", [place, *blocks] if blocks else [nothing])


def _has_short_form(policy: str) -> bool:
    """Whether an engine takes ``policy`` as it is written."""
    try:
        parse_policy(policy)
    except PolicyError:
        return False
    return True
