"""`oolong pool budget …`"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer
from typer.exceptions import TyperException

from oolong.cli.output import JsonOption, show_done, show_list
from oolong.client import Client
from oolong.client.models import Budget

app = typer.Typer(no_args_is_help=True, help="What teams and projects may use in a month.")

InPool = Annotated[str, typer.Option("--pool", help="name of the pool")]


@app.command("list")
def list_budgets(pool: InPool = "default", json: JsonOption = False) -> None:
    """The budgets of a pool that you can see, and what is used of them this month."""
    with Client() as client:
        found = list(client.pool.budgets(pool))
    show_list(
        found,
        ("TEAM", "PROJECT", "GPU-HOURS", "OF", "COST", "OF", "USED", "STATE"),
        lambda one: (
            one.team.name,
            "all" if one.project is None else one.project.name,
            f"{one.used_gpu_hours:.1f}",
            one.gpu_hours or "no limit",
            f"{one.used_cost:.2f} {one.currency}",
            one.cost or "no limit",
            f"{one.used_frac:.0%}",
            one.state,
        ),
        json=json,
    )


@app.command("set")
def set_budget(
    team: Annotated[
        str | None, typer.Option(help="id or name of a team; for those who manage the pool")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="id or name of a project of your team; for admins of the team")
    ] = None,
    gpu_hours: Annotated[
        str | None, typer.Option(help="of GPU slots in a month; none lifts the limit")
    ] = None,
    cost: Annotated[
        str | None, typer.Option(help="in a month, in the installation's currency; none lifts the limit")
    ] = None,
    pool: InPool = "default",
    json: JsonOption = False,
) -> None:
    """Set the monthly budget of a team or a project. Its runs pause when it is used up, and new ones wait."""
    given = {"gpu_hours": gpu_hours, "cost": cost}
    changes = {name: _amount(text, name) for name, text in given.items() if text is not None}
    if not changes:
        raise TyperException("nothing to change: give --gpu-hours or --cost")
    with Client() as client:
        if team is not None and project is None:
            rows = [(row.team.id, row.team.name) for row in client.pool.teams(pool)]
            found = client.pool.set_team_budget(pool, _id_of(team, rows, f"team of pool {pool}"), **changes)
        elif project is not None and team is None:
            rows = [(row.id, row.name) for row in client.project.list()]
            named = _id_of(project, rows, "project that you can see")
            found = client.pool.set_project_budget(pool, named, **changes)
        else:
            raise TyperException("whose budget? give either --team or --project")
    show_done(_summary(found, pool), found, json=json)


def _summary(found: Budget, pool: str) -> str:
    owner = f"team {found.team.name}" if found.project is None else f"project {found.project.name}"
    limits = [f"{found.gpu_hours} GPU-hours"] if found.gpu_hours is not None else []
    limits += [f"{found.cost} {found.currency}"] if found.cost is not None else []
    if not limits:
        return f"{owner} has no budget in pool {pool}"
    return f"{owner} may use {' and '.join(limits)} a month in pool {pool}; {found.used_frac:.0%} is used"


def _amount(text: str, name: str) -> str | None:
    try:
        return None if text == "none" else str(Decimal(text))
    except InvalidOperation:
        option = f"--{name.replace('_', '-')}"
        raise TyperException(f"{option} {text!r} is no amount: give a number such as 500, or none") from None


def _id_of(named: str, rows: list[tuple[str, str]], kind: str) -> str:
    """IDs win: a name may equal another row's ID."""
    for identity, _ in [row for row in rows if row[0] == named] + [row for row in rows if row[1] == named]:
        return identity
    known = ", ".join(name for _, name in rows) or "none"
    raise TyperException(f"{named!r} is no {kind}; there is {known}")
