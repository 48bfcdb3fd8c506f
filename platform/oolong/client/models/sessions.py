"""Agent sessions."""

from __future__ import annotations

from oolong.client.models.answer import Answer


class Session(Answer):
    """An open agent session: one member of a group. `base_url` and `api_key` are for an OpenAI client."""

    id: str
    run_id: str
    base_url: str
    api_key: str
    model: str
    group_id: str
    member: int
    row: int  # of the dataset version
    messages: list[dict[str, str]]  # the row's, as the dataset has them
    prompt: str  # the same, rendered
    answer: str
    temperature: float  # the run's; no other is served
    max_tokens: int  # of one completion
    timeout_seconds: float  # a session left alone for so long is dropped


class SessionBranch(Answer):
    turn: int
    because: str  # started, forked, history_rewritten


class SessionState(Answer):
    id: str
    state: str  # open, ended, dropped
    why: str
    reward: float | None
    completions: int
    sampled_tokens: int
    branches: list[SessionBranch]
