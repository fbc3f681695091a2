"""Fused forms of the hot policies: one operation, several backends, one definition.

``reroute`` is SERE and ``backfill`` the second family (select, then each row's own next best active
experts). Both choose a backend by device: numpy on the CPU, Triton on a GPU, and the pure-torch
definition anywhere else. All give the same bits. Importing this needs no Triton.
"""

from sere.kernels.backfilling import BackfillOptions
from sere.kernels.dispatch import backend_name
from sere.kernels.fused import Fused
from sere.kernels.fused_backfill import FusedBackfill
from sere.kernels.op import backfill, backfill_into, reroute, reroute_into
from sere.kernels.ready import FusedPolicy, fuse
from sere.kernels.table import LayerTable, Options, obstacle

__all__ = [
    "BackfillOptions",
    "Fused",
    "FusedBackfill",
    "FusedPolicy",
    "LayerTable",
    "Options",
    "backend_name",
    "backfill",
    "backfill_into",
    "fuse",
    "obstacle",
    "reroute",
    "reroute_into",
]
