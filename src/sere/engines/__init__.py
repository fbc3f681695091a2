"""Engines: each only translates between a serving engine and :mod:`sere.routing`.

Nothing is imported here, so that ``import sere`` loads no engine.
"""
