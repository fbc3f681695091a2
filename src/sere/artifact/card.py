"""The model card that lies beside an artifact."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sere.artifact.schema import Manifest

MARK = "library_name: sere"


def is_ours(path: Path) -> bool:
    """Say whether ``path`` may be written: it does not exist, or is a card that this library wrote."""
    if not path.exists():
        return True
    try:
        return MARK in path.read_text(encoding="utf-8").split("---", 2)[1]
    except (IndexError, OSError, ValueError):
        return False


def _base_model(name: str) -> str:
    """Front matter that links the model; nothing for a local folder, which the Hub would refuse."""
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        return ""
    return f"base_model: {json.dumps(name)}\nbase_model_relation: adapter\n"


def render(manifest: Manifest) -> str:
    """Card text: front matter that links the base model, what is inside and how it was made."""
    model, made = manifest.model, manifest.calibration
    metrics = ", ".join(f"`{name}`" for name in manifest.metrics)
    sizes = sorted({(layer.num_experts, layer.top_k) for layer in manifest.layers})
    shape = ", ".join(f"{experts} experts, top-{slots}" for experts, slots in sizes)
    revision = f" at revision `{model.revision}`" if model.revision else ""
    if made.source == "calibrated":
        how = (
            f"Calibrated on {made.sequences} sequences of {made.sequence_length} tokens from {made.data} "
            f"(seed {made.seed}, {made.batches} batches), all experts on all tokens."
        )
    else:
        how = f"Imported from {made.data}."
    return f"""---
{_base_model(model.id)}{MARK}
tags:
- mixture-of-experts
- expert-routing
- sere
---

# Expert statistics of {model.id}

How alike the experts of each mixture-of-experts layer are, for re-routing batched decoding with `sere`.
It holds no weights and changes none.

* Model: `{model.id}`{revision}, architecture `{model.architecture}`
* Layers: {len(manifest.layers)} of {shape}
* {how}
* Similarities: {metrics}; `{manifest.default_metric}` is the default.
* Made with sere {made.sere_version}.

```python
import sere

with sere.rerouted(model, "this folder or repository", "sere:top_s=2,threshold=0.5"):
    model.generate(**inputs)
```
"""
