"""Base classes of the generated models, and responses that the OpenAPI document does not describe."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")


class ApiModel(BaseModel):
    """What the API answers. Fields that a newer server adds are kept."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())


class ListPage(ApiModel, Generic[T]):
    """A list without further pages."""

    data: list[T]


class Page(ApiModel, Generic[T]):
    data: list[T]
    next_cursor: str | None = None
    has_more: bool = False


class RunBase(ApiModel):
    status: str  # see contracts.lifecycle.RunStatus
    fault: str

    @property
    def ended(self) -> bool:
        return self.status in ("SUCCEEDED", "STOPPED", "FAILED")

    @property
    def needs_attention(self) -> bool:
        """Paused by a failure: it stays paused until somebody acts, so nothing should wait for it."""
        return self.status == "PAUSED" and self.fault not in ("", "none")


class BackgroundJobBase(ApiModel):
    """A background job of the control plane: a validation, measurement or import."""

    state: str

    @property
    def ended(self) -> bool:
        return self.state in ("VALID", "INVALID", "DONE", "FAILED", "CANCELLED")

    @property
    def valid(self) -> bool:
        return self.state == "VALID"


class Frame(ApiModel):
    """One event of a live stream."""

    topic: str
    seq: int
    type: str
    ts: Any = None
    data: Any = None


class Session(ApiModel):
    """An open agent session: one rollout of a group. `base_url` and `api_key` are for an OpenAI client."""

    id: str
    run_id: str
    base_url: str
    api_key: str
    model: str
    group_id: str
    member: int
    row: int  # of the dataset version
    messages: list[dict[str, str]]  # of the dataset row
    prompt: str  # the messages, rendered with the chat template
    answer: str
    temperature: float  # fixed by the run
    max_tokens: int  # per completion
    timeout_seconds: float  # an idle session is dropped after this time


class SessionBranch(ApiModel):
    turn: int
    because: str  # started, forked, history_rewritten


class SessionState(ApiModel):
    id: str
    state: str  # open, ended, dropped
    why: str
    reward: float | None
    completions: int
    sampled_tokens: int
    branches: list[SessionBranch]


class ReplyScore(ApiModel):
    """A playground reply, scored by the run's reward function."""

    score: float
    parts: dict[str, float] = {}
    result: str = ""
    seconds: float = 0.0
