"""What a record must say about the run that made it; see :mod:`sere.provenance`."""

from sere.provenance import Provenance

__all__ = ["Provenance"]
