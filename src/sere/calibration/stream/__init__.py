"""Calibration of a checkpoint on disk, one decoder layer at a time; see ``docs/calibration.md``."""

from sere.calibration.stream.run import calibrate_streamed
from sere.calibration.stream.shards import can_stream
from sere.calibration.stream.work import folder_for, locked

__all__ = ["calibrate_streamed", "can_stream", "folder_for", "locked"]
