"""Names of the files of a sweep, in its folder."""

from typing import Final

RECORD: Final = "sweep.json"
PAGE: Final = "sweep.md"
POINTS: Final = "points.jsonl"
COMPANY: Final = "company.jsonl"
SOLUTIONS: Final = "solutions.jsonl"
