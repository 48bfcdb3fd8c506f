"""`oolong ci …`: a gate in a pipeline, set up by one command."""

from __future__ import annotations

import json as json_module
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from oolong.cli.output import JsonOption, notes, show_json
from oolong.cli.token_life import DaysOption, NoExpiryOption, expiry_of
from oolong.client import Client, OolongError
from oolong.client.models import CreatedToken, Me, ServiceAccount

app = typer.Typer(no_args_is_help=True, help="Gate changes in a pipeline.")

FILES = Path(__file__).parent / "ci_files"
SCOPES = (
    "checkpoints:read",
    "checkpoints:write",
    "datasets:read",
    "datasets:write",
    "runs:read",
    "runs:write",
)
ROLE = "editor"  # the least role that holds these


class Provider(StrEnum):
    GITHUB = "github"
    GITLAB = "gitlab"


WORKFLOWS = {Provider.GITHUB: Path(".github/workflows/oolong.yml"), Provider.GITLAB: Path(".gitlab-ci.yml")}
STORE = {
    Provider.GITHUB: "gh secret set OOLONG_TOKEN   (paste the token), and gh variable set OOLONG_URL --body {url}",
    Provider.GITLAB: "Settings > CI/CD > Variables: OOLONG_TOKEN, masked (paste the token), and OOLONG_URL = {url}",
}


@app.command()
def init(
    provider: Annotated[Provider, typer.Argument(help="whose workflow file is written")],
    dataset: Annotated[str, typer.Option(help="file that the pipeline uploads")] = "data/rows.jsonl",
    spec: Annotated[str, typer.Option(help="RunSpec of the run")] = "oolong/run.yaml",
    alias: Annotated[str, typer.Option(help="what a checkpoint that passes is promoted to")] = "candidate",
    mapping: Annotated[
        str, typer.Option(help="which column is what")
    ] = "--prompt-column prompt --answer-column answer",
    assertion: Annotated[
        list[str] | None, typer.Option("--assert", help="'eval/accuracy >= 0.8'; repeatable")
    ] = None,
    account: Annotated[
        str, typer.Option(help="service account; made when the project has none of this name")
    ] = "ci",
    days: DaysOption = None,
    no_expiry: NoExpiryOption = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="workflow file; the provider's usual place")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the workflow file")] = False,
    json: JsonOption = False,
) -> None:
    """Write a workflow file, and make a service account and a token with the least scopes that the gate needs.

    The token is tried out, printed once and kept nowhere: store it as a secret of the pipeline.
    """
    expires_at = expiry_of(days, no_expiry=no_expiry)
    path = output or WORKFLOWS[provider]
    if path.exists() and not force:
        raise typer.BadParameter(
            f"{path} exists: give --output, or --force to replace it", param_hint="--output"
        )
    values = {
        "DATASET_FILE": dataset, "SPEC_FILE": spec, "ALIAS_NAME": alias, "COLUMN_MAPPING": mapping,
        "ASSERTIONS": "\n".join(assertion or []),
    }  # fmt: skip
    with Client() as client:
        identity = _service_account(client, account).id
        made = client.service_accounts.create_token(
            identity, f"pipeline ({provider})", scopes=SCOPES, expires_at=expires_at, never_expires=no_expiry
        )
        try:
            me = _try_out(client.settings.url, made)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_workflow(provider, values))
        except (OolongError, OSError):
            client.tokens.revoke(made.id)  # nobody will ever see it
            raise
        url = client.settings.url
    if json:
        show_json({"workflow": str(path), "service_account": account, "token": made.model_dump(mode="json")})
        return
    notes.print(f"wrote {path}", markup=False)
    notes.print(
        f"{me.user.username} works: {', '.join(me.scopes)}; expires {made.expires_at or 'never'}",
        markup=False,
    )
    notes.print(f"Store it now, it is shown this once: {STORE[provider].format(url=url)}", markup=False)
    print(made.token)


@app.command()
def gate(
    dataset: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="file to upload")],
    spec: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="RunSpec, YAML or JSON")],
    alias: Annotated[str, typer.Argument(help="what the checkpoint is promoted to")],
) -> None:
    """Run the gate: upload, train, check, verify, promote. OOLONG_URL, OOLONG_TOKEN and GATE_… are its inputs.

    It is docs/ci/gate.sh, which lists them, in the version of this command. Needs bash, sha256sum and tar.
    """
    os.execvp("bash", ["bash", str(FILES / "gate.sh"), str(dataset), str(spec), alias])


def _service_account(client: Client, name: str) -> ServiceAccount:
    for found in client.service_accounts.list():
        if found.name == name:
            return found
    return client.service_accounts.create(name, ROLE)


def _try_out(url: str, token: CreatedToken) -> Me:
    """As the pipeline will use it. Raises OolongError when it cannot do what the gate does."""
    with Client(url, token.token) as client:
        me = client.me()
        if lacking := sorted(set(SCOPES) - set(me.scopes)):
            raise OolongError(
                f"the token of {me.user.username} lacks {', '.join(lacking)}: its role is {me.role}; give it {ROLE} "
                f"(oolong service-account set {me.user.username.partition('@')[0]} {ROLE})"
            )
        next(iter(client.runs.list()), None)
    return me


def _workflow(provider: Provider, values: dict[str, Any]) -> str:
    text = (FILES / f"{provider}.yml").read_text()
    for name, value in values.items():
        text = text.replace(name, json_module.dumps(value))  # a JSON string is a YAML one
    return text
