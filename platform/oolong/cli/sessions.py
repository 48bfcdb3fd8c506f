"""`oolong session …`: agent sessions of a run, by hand; agents use the SDK."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oolong.cli.output import show_json
from oolong.client import Client
from oolong.client.models import Session

app = typer.Typer(no_args_is_help=True, help="Agent sessions of a run (workflow agent_session).")

Run = Annotated[str, typer.Argument(help="id of the run (run_…)")]
SessionId = Annotated[str, typer.Argument(help="id of the session, as `open` prints it")]


@app.command("open")
def open_session(
    run: Run,
    wait: Annotated[float, typer.Option(min=0, help="seconds to ask again while the gate is closed")] = 60.0,
) -> None:
    """Open a session; prints it as JSON: the row's messages and answer, base_url and api_key."""
    with Client() as client:
        show_json(client.sessions.open(run, wait_seconds=wait))


@app.command()
def get(run: Run, session: SessionId) -> None:
    """How a session stands, with its branches."""
    with Client() as client:
        show_json(client.sessions.get(_named(run, session)))


@app.command()
def reward(run: Run, session: SessionId, value: Annotated[float, typer.Argument()]) -> None:
    """Set the session's reward."""
    with Client() as client:
        show_json(client.sessions.set_reward(_named(run, session), value))


@app.command()
def end(
    run: Run,
    session: SessionId,
    value: Annotated[float | None, typer.Option("--reward", help="set it first")] = None,
    discard: Annotated[bool, typer.Option(help="drop the session with its group: no reward at all")] = False,
) -> None:
    """End a session."""
    with Client() as client:
        named = _named(run, session)
        ended = client.sessions.discard(named) if discard else client.sessions.end(named, reward=value)
        show_json(ended)


def _named(run: str, session: str) -> Session:
    """The session by its ids alone, which is all that these requests need."""
    ids: dict[str, Any] = {"run_id": run, "id": session}
    return Session.model_construct(**ids)
