"""Chats with models on free slots."""

from __future__ import annotations

from datetime import datetime

from oolong.client.models.answer import Answer
from oolong.client.models.runs import ModelReference


class PlaygroundSide(Answer):
    run: str  # of kind playground
    model: ModelReference
    status: str
    ready: bool
    pending_reason: str = ""
    reason: str = ""
    reason_message: str = ""
    base_url: str  # for OpenAI clients, behind the server's address; your token is the api_key


class Playground(Answer):
    id: str
    open: bool
    sides: list[PlaygroundSide]
    created_by: str
    created_at: datetime


class ReplyScore(Answer):
    score: float
    parts: dict[str, float] = {}
    verdict: str = ""
    seconds: float = 0.0
