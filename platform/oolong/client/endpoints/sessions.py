"""Agent sessions of a run."""

from __future__ import annotations

from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec, format_path
from oolong.client.models import Session, SessionState


def open(run_id: str) -> RequestSpec[Session]:
    """Without a key: repeated after a lost answer it would open a second one, and the first would be left alone."""
    return RequestSpec("POST", format_path("runs/{}/sessions", (run_id,)), Session, body={})


def get(run_id: str, session_id: str) -> RequestSpec[SessionState]:
    return request_spec.get("runs/{}/sessions/{}", SessionState, run_id, session_id)


def set_reward(run_id: str, session_id: str, reward: float) -> RequestSpec[SessionState]:
    return request_spec.put(
        "runs/{}/sessions/{}/reward", SessionState, run_id, session_id, body={"reward": reward}
    )


def end(
    run_id: str, session_id: str, *, reward: float | None = None, discard: bool = False
) -> RequestSpec[SessionState]:
    """Without a key, like `open`: the relay hands it to the job as it is."""
    body: dict[str, Any] = {"discard": True} if discard else {} if reward is None else {"reward": reward}
    return RequestSpec(
        "POST", format_path("runs/{}/sessions/{}/end", (run_id, session_id)), SessionState, body=body
    )
