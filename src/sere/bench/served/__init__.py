"""Speed of served policies under load: ``vllm bench serve`` against a fresh server for each variant."""

from sere.bench.served.config import PRESETS, ServedConfig, read_objective
from sere.bench.served.record import Activity, Cell, ServedRecord, Spread, Summary
from sere.bench.served.run import run_served
from sere.bench.subject import Subject

__all__ = [
    "PRESETS",
    "Activity",
    "Cell",
    "ServedConfig",
    "ServedRecord",
    "Spread",
    "Subject",
    "Summary",
    "read_objective",
    "run_served",
]
