"""Records of runs as one self-contained HTML page; see :func:`sere.report.page.write_report`."""

from sere.report.page import render, write_report

__all__ = ["render", "write_report"]
