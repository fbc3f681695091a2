"""Transformers: re-route a loaded model in place, for as long as it is wanted.

.. code-block:: python

    with sere.rerouted(model, artifact, "sere:top_s=2,threshold=0.5") as handle:
        model.generate(**inputs)
    print(handle.counters().distinct_after)
"""

from sere.engines.transformers.api import apply, remove, rerouted
from sere.engines.transformers.counters import RunCounters
from sere.engines.transformers.describe import describe
from sere.engines.transformers.handle import Handle
from sere.engines.transformers.layers import MoELayer, find_layers
from sere.engines.transformers.replay import recording, replaying
from sere.engines.transformers.routes import Routes

__all__ = [
    "Handle",
    "MoELayer",
    "Routes",
    "RunCounters",
    "apply",
    "describe",
    "find_layers",
    "recording",
    "remove",
    "replaying",
    "rerouted",
]
