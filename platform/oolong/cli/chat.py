"""`oolong checkpoint chat`: one checkpoint, or two side by side, on free slots."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.exceptions import TyperException

from oolong.cli.exit_codes import ExitCode
from oolong.cli.output import notes
from oolong.client import Client
from oolong.client.models import Playground, PlaygroundSide

Message = dict[str, str]


def chat(
    checkpoints: Annotated[
        list[str] | None, typer.Argument(help="one or two: id, alias, run_…@20, name@latest")
    ] = None,
    base_model: Annotated[
        list[str] | None, typer.Option("--base-model", help="a base model, beside or instead")
    ] = None,
    once: Annotated[
        str | None, typer.Option(help="say this, print the replies, and close; else a conversation")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0)] = 0.7,
    max_tokens: Annotated[int, typer.Option(min=1)] = 512,
    idle: Annotated[int, typer.Option(min=30, help="seconds without a word after which the slot goes")] = 600,
    timeout: Annotated[float, typer.Option(min=1, help="seconds to wait for a slot and the engine")] = 900.0,
) -> None:
    """Chat with a checkpoint. It takes a slot that no run needs, and goes when one does."""
    models = [{"checkpoint": name} for name in checkpoints or []]
    models += [{"base_model": name} for name in base_model or []]
    if not 1 <= len(models) <= 2:
        raise TyperException("name one or two models to chat with")
    with Client() as client:
        opened = client.playgrounds.open(*models, idle_seconds=idle)
        try:
            ready = _wait(client, opened, timeout)
            conversations: dict[str, list[Message]] = {side.run: [] for side in ready}
            while (said := once if once is not None else _read_prompt()) is not None:
                for side in ready:
                    _say(
                        client,
                        side,
                        conversations[side.run],
                        said,
                        temperature,
                        max_tokens,
                        many=len(ready) > 1,
                    )
                if once is not None:
                    break
        finally:
            client.playgrounds.close(opened.id)


def _wait(client: Client, opened: Playground, timeout: float) -> list[PlaygroundSide]:
    for side in opened.sides:
        notes.print(f"{side.model.name}: waits for a slot ({side.run})", markup=False)
    found = client.playgrounds.wait_ready(opened.id, timeout_seconds=timeout)
    for side in found.sides:
        if not side.ready:
            notes.print(
                f"{side.model.name}: {side.status} {side.reason_message or side.pending_reason}", markup=False
            )
    ready = [side for side in found.sides if side.ready]
    if not ready:
        raise typer.Exit(ExitCode.FAILED)
    return ready


def _read_prompt() -> str | None:
    try:
        return input("> ") or None
    except EOFError:
        return None


def _say(
    client: Client,
    side: PlaygroundSide,
    messages: list[Message],
    said: str,
    temperature: float,
    max_tokens: int,
    *,
    many: bool,
) -> None:
    messages.append({"role": "user", "content": said})
    if many:
        print(f"[{side.model.name}] ", end="")
    reply = ""
    for piece in client.playgrounds.chat(side.run, messages, temperature=temperature, max_tokens=max_tokens):
        print(piece, end="", flush=True)
        reply += piece
    print()
    messages.append({"role": "assistant", "content": reply})
