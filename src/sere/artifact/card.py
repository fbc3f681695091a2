"""The model card that lies beside an artifact."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sere.artifact.schema import Manifest, OperatingPoint

MARK = "library_name: sere"
EXAMPLE = "sere:top_s=2,threshold=0.5"
"""Policy of the usage examples where nothing was tuned."""
TUNED, SIZES = "tuned", "sizes"
"""Where the tuner keeps what it measured, and what of that is by batch size."""


@dataclass(frozen=True)
class CardFacts:
    """What a card says that the manifest does not know.

    Attributes:
        name: Where the artifact can be loaded from: a repository or a folder.
        license: Its licence as the Hub writes it (``apache-2.0``); None leaves the field out.

    """

    name: str = "DIR"
    license: str | None = None


def is_ours(path: Path) -> bool:
    """Say whether ``path`` may be written: it does not exist, or is a card that this library wrote."""
    if not path.exists():
        return True
    try:
        return MARK in path.read_text(encoding="utf-8").split("---", 2)[1]
    except (IndexError, OSError, ValueError):
        return False


def render(manifest: Manifest, facts: CardFacts | None = None) -> str:
    """Card text: front matter that links the base model, use, operating points, data, licence."""
    facts, model = facts or CardFacts(), manifest.model
    sizes = sorted({(layer.num_experts, layer.top_k) for layer in manifest.layers})
    shape = ", ".join(f"{experts} experts, top-{slots}" for experts, slots in sizes)
    revision = f" at revision `{model.revision}`" if model.revision else ""
    metrics = ", ".join(f"`{name}`" for name in manifest.metrics)
    license_line = "" if facts.license is None else f"license: {json.dumps(facts.license)}\n"
    return f"""---
{_base_model(model.id)}{license_line}{MARK}
tags:
- mixture-of-experts
- expert-routing
- sere
---

# Expert statistics of {model.id}

How alike the experts of each mixture-of-experts layer are, for re-routing batched decoding with `sere`.
It holds no weights and changes none.

* Model: `{model.id}`{revision}, architecture `{model.architecture}`, fingerprint `{model.fingerprint}`
* Layers: {len(manifest.layers)} of {shape}
* Similarities: {metrics}; `{manifest.default_metric}` is the default.

## Use

{_use(manifest, facts)}
Re-routing trades nearness to the unmodified model for fewer reads. Answers depend on which sequences
share a batch, and small batches lose more.
Measure on your own traffic: `sere compare {_model(manifest)} {facts.name}`.

## Operating points

{_points(manifest.operating_points)}
## Data

{_data(manifest)}
## Licence

{_licence(facts)}
"""


def _base_model(name: str) -> str:
    """Front matter that links the model; nothing for a local folder, which the Hub would refuse."""
    if not _is_repository(name):
        return ""
    return f"base_model: {json.dumps(name)}\nbase_model_relation: adapter\n"


def _is_repository(name: str) -> bool:
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None


def _model(manifest: Manifest) -> str:
    return manifest.model.id if _is_repository(manifest.model.id) else "MODEL"


def _use(manifest: Manifest, facts: CardFacts) -> str:
    policy = next((name for name in manifest.operating_points), EXAMPLE)
    option = json.dumps({"sere": {"artifact": facts.name, "policy": policy}})
    return f"""With vLLM:

```console
pip install vllm sere-moe
vllm serve {_model(manifest)} --additional-config '{option}'
sere doctor --url http://localhost:8000
```

With Transformers:

```python
import sere
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained({json.dumps(_model(manifest))})
with sere.rerouted(model, {json.dumps(facts.name)}, {json.dumps(policy)}):
    model.generate(**inputs)
```
"""


def _points(points: Mapping[str, OperatingPoint]) -> str:
    if not points:
        return (
            f"None were tuned. The policy above, `{EXAMPLE}`, is an example; `sere tune` finds "
            "ones that fit a model.\n"
        )
    lines = ["| name | policy | similarity | measured |", "| --- | --- | --- | --- |"]
    for name, point in points.items():
        form = point.policy.replace("|", "\\|")
        lines.append(f"| `{name}` | `{form}` | {point.metric or 'default'} | {measured(point)} |")
    return "\n".join(lines) + "\n"


def measured(point: OperatingPoint) -> str:
    """Say what the tuner remembered: plain figures, words and intervals, and those one level down."""
    said = []
    for name, value in (point.model_extra or {}).items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        prefix = "" if name == TUNED else f"{name} "
        for key, one in inner:
            if _can_say(one):
                said.append(f"{prefix if key else name}{key}".replace("_", " ") + f": {_plain(one)}")
            elif key == SIZES and isinstance(one, list):
                said += [_at_size(size) for size in one if isinstance(size, Mapping)]
    guard = getattr(point, "guard", None)
    if guard is not None:
        least, most = guard
        said.append(f"pays from {least} rows" + (f" to {most}" if most is not None else ""))
    return "; ".join(said).replace("|", "\\|").replace("\n", " ") or "not measured"


def _at_size(size: Mapping[str, object]) -> str:
    """Say what a point does at one batch size."""
    figures = {
        "after": "distinct experts",
        "before": "instead of",
        "loss": "loss",
        "speedup": "predicted speed-up",
    }
    said = [f"{word} {_plain(size[key])}" for key, word in figures.items() if size.get(key) is not None]
    return f"at batch {size.get('batch_size', '?')} {', '.join(said)}"


def _can_say(value: object) -> bool:
    if isinstance(value, list | tuple):
        return len(value) == 2 and all(isinstance(end, int | float) for end in value)  # an interval
    return isinstance(value, str | int | float)


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return " to ".join(_plain(end) for end in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _data(manifest: Manifest) -> str:
    made = manifest.calibration
    if made.source != "calibrated":
        return f"Imported from {made.data} with sere {made.sere_version}.\n"
    digest = f" SHA-256 of the token ids: `{made.data_sha256}`." if made.data_sha256 else ""
    dtype = f", model in {made.dtype}" if made.dtype else ""
    return (
        f"Calibrated on {made.sequences} sequences of {made.sequence_length} tokens from {made.data} "
        f"(seed {made.seed}, {made.batches} batches{dtype}), all experts on all tokens, with sere "
        f"{made.sere_version}.{digest} No text is stored.\n"
    )


def _licence(facts: CardFacts) -> str:
    own = f"The artifact: `{facts.license}`. " if facts.license else ""
    return (
        f"{own}These statistics were computed with the base model's weights: its licence says what "
        "may be done "
        "with what is derived "
        "from them. `sere` itself is Apache-2.0."
    )
