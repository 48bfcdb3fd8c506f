"""What can go wrong between a worker and its engine."""

from __future__ import annotations


class EngineError(Exception):
    """The engine answered with a refusal; the message carries its status and text."""


class EngineGone(EngineError):
    """The connection broke: the engine died, or is going to. Tokens not yet returned are lost."""


class EngineWouldBreak(EngineError):
    """The request was kept from the engine because it cannot serve it, or would die of it."""
