"""The `oolong` command. Exit codes: see `oolong.cli.exit_codes`."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from oolong import __version__
from oolong.cli import (
    audit,
    checkpoints,
    ci,
    completion,
    datasets,
    functions,
    invitations,
    login,
    members,
    models,
    nodes,
    pool,
    project,
    quickstart,
    rewards,
    runs,
    secrets,
    service_accounts,
    sessions,
    streams,
    sweeps,
    teams,
    templates,
    tokens,
    views,
    webhooks,
)
from oolong.cli.exit_codes import ExitCode, of_error
from oolong.cli.output import notes, show_error_json
from oolong.client import OolongError, TokenExpiresSoon

app = typer.Typer(
    name="oolong",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,  # `oolong completion` prints the script
    help="Asynchronous reinforcement learning of language models on a shared pool.",
)
app.add_typer(login.app)
app.add_typer(quickstart.app)
app.add_typer(completion.app)
app.add_typer(runs.app, name="run")
app.add_typer(datasets.app, name="dataset")
app.add_typer(models.app, name="model")
app.add_typer(functions.app, name="function")
app.add_typer(rewards.app, name="reward")
app.add_typer(checkpoints.app, name="checkpoint")
app.add_typer(checkpoints.app, name="ckpt", hidden=True)
app.add_typer(ci.app, name="ci")
app.add_typer(pool.app, name="pool")
app.add_typer(nodes.app, name="node")
app.add_typer(project.app, name="project")
app.add_typer(sessions.app, name="session")
app.add_typer(tokens.app, name="token")
app.add_typer(teams.app, name="team")
app.add_typer(members.app, name="member")
app.add_typer(invitations.app, name="invite")
app.add_typer(service_accounts.app, name="service-account")
app.add_typer(secrets.app, name="secret")
app.add_typer(audit.app, name="audit")
app.add_typer(streams.app, name="stream")
app.add_typer(webhooks.app, name="webhook")
app.add_typer(sweeps.app, name="sweep")
app.add_typer(templates.app, name="template")
app.add_typer(views.app, name="view")


NAMED_FILE_FAULTS = (
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"oolong {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="print the version and exit", is_eager=True, callback=_print_version),
    ] = False,
    profile: Annotated[
        str | None, typer.Option(help="a profile that `oolong login` keeps", envvar="OOLONG_PROFILE")
    ] = None,
) -> None:
    if profile is not None:
        os.environ["OOLONG_PROFILE"] = profile  # where clients read it


@cache
def command() -> Callable[..., Any]:
    """The tree of all commands. It takes a tenth of a second to put together, so a process does so once."""
    return typer.main.get_command(app)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    notes.print(f"warning: {message}", markup=False)


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("once", TokenExpiresSoon)
        warnings.showwarning = _show_warning
        _run()


def _run() -> None:
    try:
        code = command()(prog_name="oolong", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else ExitCode.SUCCEEDED)
    except TyperException as refusal:  # of the arguments
        _tell(refusal, ExitCode.USAGE)
    except (OolongError, TimeoutError) as error:
        _tell(error, of_error(error))
    except NAMED_FILE_FAULTS as error:  # of a file that an argument names
        if error.filename is None:
            raise
        _tell(ValueError(f"{error.filename}: {error.strerror}"), ExitCode.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader left (`oolong run logs | head`): nothing more to say
        sys.exit(ExitCode.UNEXPECTED)


def _tell(error: Exception, code: ExitCode) -> NoReturn:
    """On stderr: text, or with --json a JSON object of one line."""
    if "--json" in sys.argv[1:]:
        show_error_json(error, code)
    elif isinstance(error, TyperException):
        if said := error.format_message():  # without: a group of commands has shown its help
            notes.print(f"error: {said.rstrip('.')}{_where_to_look(error)}", markup=False)
    else:
        notes.print(f"error: {error}", markup=False)
    sys.exit(code)


def _where_to_look(error: TyperException) -> str:
    """After words that do not fit the command: the line that shows what it takes."""
    context = getattr(error, "ctx", None)
    return f"; see `{context.command_path} --help`" if context is not None else ""


if __name__ == "__main__":
    main()
