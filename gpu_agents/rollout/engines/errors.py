"""What can go wrong between a worker and its engine."""

from __future__ import annotations


class EngineError(Exception):
    """The engine did not do what it was asked to; the message says what came instead."""


class EngineHttpError(EngineError):
    """A call came back with another status than 200."""

    def __init__(self, path: str, status: int, answer: str) -> None:
        super().__init__(f"/{path} of the engine: {status}: {answer}")
        self.status = status


class EngineUnavailable(EngineError):
    """The connection broke: the engine died, or is going to. Tokens not yet returned are lost."""


class UnsafeEngineRequest(EngineError):
    """The request was kept from the engine because it cannot serve it, or would die of it."""


class EngineConfigRejected(Exception):
    """No engine can serve what the spec asks of this node. The message has the way out."""


class EngineTooOld(EngineConfigRejected):
    """The engine lacks what the spec asks of it; no request will fare better. The message has the way out."""
