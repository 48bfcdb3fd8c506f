"""Errors between a worker and its engine."""

from __future__ import annotations


class EngineError(Exception):
    """A request to the engine failed. The message has the engine's answer."""


class EngineHttpError(EngineError):
    """A call returned a status other than 200."""

    def __init__(self, path: str, status: int, answer: str) -> None:
        super().__init__(f"/{path} of the engine: {status}: {answer}")
        self.status = status


class EngineUnavailable(EngineError):
    """The connection broke: the engine crashed or is about to. Tokens not yet returned are lost."""


class UnsafeEngineRequest(EngineError):
    """The request was not sent, because the engine cannot serve it or would crash."""


class EngineConfigRejected(Exception):
    """No engine on this node can serve the spec. The message has the fix."""


class EngineTooOld(EngineConfigRejected):
    """The engine lacks a feature that the spec needs. Retrying does not help. The message has the fix."""
