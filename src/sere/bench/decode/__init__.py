"""Offline decode speed at fixed batch sizes, all variants in turns, in Transformers or vLLM."""

from sere.bench.decode.config import DecodeConfig, EngineName
from sere.bench.decode.record import DecodeRecord, DecodeResult, Round, Turn
from sere.bench.decode.run import run_decode

__all__ = ["DecodeConfig", "DecodeRecord", "DecodeResult", "EngineName", "Round", "Turn", "run_decode"]
