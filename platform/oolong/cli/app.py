"""The `oolong` command. Exit codes: see `oolong.cli.exit_codes`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from oolong.cli import (
    audit,
    checkpoints,
    datasets,
    functions,
    models,
    pool,
    project,
    rewards,
    runs,
    secrets,
    sessions,
    tokens,
    webhooks,
)
from oolong.cli.exit_codes import ExitCode, of_error
from oolong.cli.output import JsonOption, notes, show_json
from oolong.client import Client, OolongError
from oolong.client.settings import ClientSettings, write_settings

app = typer.Typer(
    name="oolong",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Asynchronous reinforcement learning of language models on a shared pool.",
)
app.add_typer(runs.app, name="run")
app.add_typer(datasets.app, name="dataset")
app.add_typer(models.app, name="model")
app.add_typer(functions.app, name="function")
app.add_typer(rewards.app, name="reward")
app.add_typer(checkpoints.app, name="ckpt")
app.add_typer(pool.app, name="pool")
app.add_typer(project.app, name="project")
app.add_typer(sessions.app, name="session")
app.add_typer(tokens.app, name="token")
app.add_typer(secrets.app, name="secret")
app.add_typer(audit.app, name="audit")
app.add_typer(webhooks.app, name="webhook")


@app.command()
def login(
    url: Annotated[str, typer.Option(help="URL of the control plane")],
    token: Annotated[str | None, typer.Option(help="API token; asked for when left out")] = None,
) -> None:
    """Check a token and remember it, with the URL, in ~/.config/oolong/config.toml (readable by you only)."""
    secret = token or typer.prompt("API token", hide_input=True, err=True)
    with Client(url, secret) as client:
        me = client.me()
    path = write_settings(ClientSettings(url.rstrip("/"), secret))
    notes.print(f"logged in as {me.user.username}, project {me.project.name}; kept in {path}", markup=False)


@app.command()
def whoami(json: JsonOption = False) -> None:
    """Whose token this is, and what it may do."""
    with Client() as client:
        me = client.me()
    show_json(me) if json else print(
        f"{me.user.username} ({me.team.name}/{me.project.name}): {', '.join(me.scopes)}"
    )


def main() -> None:
    try:
        app()
    except (OolongError, TimeoutError) as error:
        notes.print(f"error: {error}", markup=False)
        sys.exit(of_error(error))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader left (`oolong run logs | head`): nothing more to say
        sys.exit(ExitCode.UNEXPECTED)


if __name__ == "__main__":
    main()
