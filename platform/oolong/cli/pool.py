"""`oolong pool …`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.exceptions import TyperException

from oolong.cli import pool_budgets, pool_calendar, pool_prices, pool_provider
from oolong.cli.output import JsonOption, notes, show_done, show_json, show_list, show_table
from oolong.cli.run_output import eta_text
from oolong.client import Client
from oolong.client.models import OutcomeSeconds, Phases, ProjectQuota, Quota, UsageRow, UsageTotal

app = typer.Typer(no_args_is_help=True, help="Pools: queue, usage, and who may use them.")

teams_app = typer.Typer(no_args_is_help=True, help="The teams that may use a pool.")
admins_app = typer.Typer(no_args_is_help=True, help="The people who manage a pool.")
app.add_typer(teams_app, name="teams")
app.add_typer(admins_app, name="admins")
app.add_typer(pool_calendar.reservation_app, name="reservation")
app.add_typer(pool_calendar.maintenance_app, name="maintenance")
app.add_typer(pool_calendar.quarantine_app, name="quarantine")
app.add_typer(pool_prices.app, name="price")
app.add_typer(pool_budgets.app, name="budget")
app.add_typer(pool_provider.app, name="provider")

PHASES = tuple(Phases.model_fields)
OUTCOMES = tuple(OutcomeSeconds.model_fields)
Switch = Literal["on", "off"]
PoolOption = Annotated[
    str | None, typer.Option("--pool", help="name of the pool; the default one when left out")
]
PoolArgument = Annotated[str, typer.Argument(help="name of the pool")]
TeamArgument = Annotated[str, typer.Argument(help="id or name of a team")]


@app.command()
def queue(pool: PoolOption = None, json: JsonOption = False) -> None:
    """Runs that wait, in order, why, and when they start."""
    with Client() as client:
        found = client.pool.get(pool)
    show_list(
        found.queue,
        ("RUN", "NAME", "PRIORITY", "SLOTS", "STARTS", "WHY IT WAITS"),
        lambda run: (run.run_id, run.name, run.priority, run.slots_needed, eta_text(run.start), run.why),
        json=json,
    )


@app.command()
def usage(
    by: Annotated[Literal["run", "project", "team"], typer.Option(help="one line for each")] = "run",
    since: Annotated[
        str | None, typer.Option(help="2026-11-01T00:00:00Z; 30 days before --until when left out")
    ] = None,
    until: Annotated[str | None, typer.Option(help="now when left out")] = None,
    device: Annotated[Literal["cuda", "cpu"] | None, typer.Option(help="only slots of this kind")] = None,
    split: Annotated[
        Literal["phase", "outcome"], typer.Option(help="by what the slots did, or by what became of it")
    ] = "phase",
    csv: Annotated[Path | None, typer.Option(help="write every row to this file; - is stdout")] = None,
    json: JsonOption = False,
) -> None:
    """Seconds of slots, and what was done with them; and the tokens that came of it."""
    with Client() as client:
        if csv is not None:
            data = client.pool.usage_csv(by=by, since=since, until=until, device=device)
            sys.stdout.write(data.decode()) if str(csv) == "-" else csv.write_bytes(data)
            return
        found = client.pool.usage(by=by, since=since, until=until, device=device)
    if json:
        show_json(found)
        return
    names = PHASES if split == "phase" else OUTCOMES
    columns = (
        "SLOT SECONDS",
        "GPU SECONDS",
        f"COST {found.currency}",
        *(name.replace("_", " ").upper() for name in names),
        "WASTED TOKENS",
    )
    rows: list[tuple[object, ...]] = [(_name(row, by), *_figures(row, split)) for row in found.data]
    if found.left_out:
        notes.print(f"{found.left_out} more; --csv has all", markup=False)
    show_table((by.upper(), *columns), [*rows, ("total", *_figures(found.total, split))])


def _name(row: UsageRow, by: str) -> str:
    named = {"run": row.run, "project": row.project, "team": row.team}[by]
    if named is not None:
        return named.name if by != "run" else f"{named.id} {named.name}"
    return f"other {by}s" + (f" of {row.team.name}" if row.team is not None else "")


def _figures(row: UsageTotal, split: Literal["phase", "outcome"]) -> tuple[object, ...]:
    parts = (
        [getattr(row.phases, name) for name in PHASES]
        if split == "phase"
        else [getattr(row.outcomes, name) for name in OUTCOMES]
    )
    seconds = (row.slot_seconds, row.gpu_seconds), parts
    before, after = ([f"{one:.0f}" for one in some] for some in seconds)
    return (*before, f"{row.cost:.2f}", *after, row.tokens.wasted)


@app.command("list")
def list_pools(json: JsonOption = False) -> None:
    """The pools that your team may use, and those that you manage."""
    with Client() as client:
        found = list(client.pool.list())
    show_list(
        found,
        ("POOL", "OPEN TO", "TRAINER CODE", "YOU MANAGE IT"),
        lambda pool: (
            pool.name,
            "all teams" if pool.all_teams else "named teams",
            "on" if pool.trainer_code else "off",
            "yes" if pool.may_manage else "no",
        ),
        json=json,
    )


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="lower-case letters, digits, hyphens")],
    all_teams: Annotated[bool, typer.Option("--all-teams", help="every team may use it")] = False,
    trainer_code: Annotated[
        bool, typer.Option("--trainer-code", help="runs may bring losses, which run inside the trainer")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Create a pool. For admins of the installation."""
    with Client() as client:
        made = client.pool.create(name, all_teams=all_teams, trainer_code=trainer_code)
    show_done(
        f"pool {made.name} is there; nodes join it with a token: oolong node join-token", made, json=json
    )


@app.command("set")
def set_pool(
    name: PoolArgument,
    all_teams: Annotated[
        Switch | None, typer.Option(help="whether every team may use it, or only those bound to it")
    ] = None,
    trainer_code: Annotated[
        Switch | None, typer.Option(help="whether runs may bring losses, which run inside the trainer")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Change a pool. For admins of the installation."""
    if all_teams is None and trainer_code is None:
        raise TyperException("give --all-teams or --trainer-code")
    with Client() as client:
        changed = client.pool.change(name, all_teams=_switch(all_teams), trainer_code=_switch(trainer_code))
    open_to = "all teams" if changed.all_teams else "named teams"
    code = "on" if changed.trainer_code else "off"
    show_done(f"pool {changed.name} is open to {open_to}, trainer code is {code}", changed, json=json)


@app.command()
def delete(name: PoolArgument, json: JsonOption = False) -> None:
    """Delete a pool without nodes that no run names any more. For admins of the installation."""
    with Client() as client:
        client.pool.delete(name)
    show_done(f"pool {name} is deleted", {"deleted": name}, json=json)


@app.command()
def quota(
    team: TeamArgument,
    limit: Annotated[
        str | None, typer.Argument(help="slots that the team may hold at once; none lifts the limit")
    ] = None,
    nominal: Annotated[
        int | None,
        typer.Option(min=0, help="slots that the team can always get; others borrow them while idle"),
    ] = None,
    lending: Annotated[
        str | None, typer.Option(help="idle nominal slots that others may borrow; none lifts the limit")
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(help="id or name of a project of the team: set its share of the team's quota"),
    ] = None,
    pool: Annotated[str, typer.Option(help="name of the pool")] = "default",
    json: JsonOption = False,
) -> None:
    """Set the quota of a team, or of one of its projects. For those who manage the pool."""
    if project is not None and lending is not None:
        raise TyperException("--lending is for teams: projects lend all that they leave idle to their team")
    changes: dict[str, int | None] = {} if nominal is None else {"nominal_slots": nominal}
    changes |= {} if limit is None else {"limit_slots": _limit(limit)}
    changes |= {} if lending is None else {"lending_limit": _limit(lending)}
    if not changes:
        raise TyperException("nothing to change: give a limit, --nominal or --lending")
    if project is not None:
        _set_project_quota(pool, team, project, changes, json=json)
        return
    with Client() as client:
        found = client.pool.set_quota(pool, _team(client, pool, team).team.id, **changes)
    limited = "no limit" if found.limit_slots is None else f"at most {found.limit_slots} slots"
    lendable = "all" if found.lending_limit is None else f"at most {found.lending_limit}"
    message = (
        f"{found.team.name} has {found.nominal_slots} nominal slots (lends {lendable} of them), {limited}"
    )
    show_done(f"{message} in pool {pool}", found, json=json)


def _set_project_quota(
    pool: str, team: str, project: str, changes: dict[str, int | None], *, json: bool
) -> None:
    with Client() as client:
        team_id = _team(client, pool, team).team.id
        named = _project(list(client.pool.project_quotas(pool, team_id)), project)
        found = client.pool.set_project_quota(pool, team_id, named.project.id, **changes)
    limited = "no limit but the team's" if found.limit_slots is None else f"at most {found.limit_slots} slots"
    message = f"project {found.project.name} has {found.nominal_slots} of the team's nominal slots, {limited}"
    show_done(f"{message} in pool {pool}", found, json=json)


def _project(rows: list[ProjectQuota], named: str) -> ProjectQuota:
    """A project of a team by its ID or name; IDs win."""
    by_id = [row for row in rows if row.project.id == named]
    for row in by_id + [row for row in rows if row.project.name == named]:
        return row
    known = ", ".join(row.project.name for row in rows)
    raise TyperException(f"{named!r} is no project of the team; it has {known or 'none'}")


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise TyperException(f"{text!r} is no number of slots; give a number, or none")
    return int(text)


@teams_app.command("list")
def list_teams(pool: PoolArgument, json: JsonOption = False) -> None:
    """The teams that may use a pool, what they hold and their limits."""
    with Client() as client:
        found = list(client.pool.teams(pool))
    show_list(
        found,
        ("ID", "TEAM", "SLOTS HELD", "NOMINAL", "LIMIT", "LENDS"),
        lambda row: (
            row.team.id,
            row.team.name,
            row.used_slots,
            row.nominal_slots,
            row.limit_slots,
            row.lending_limit,
        ),
        json=json,
    )


@teams_app.command("add")
def add_team(pool: PoolArgument, team: TeamArgument, json: JsonOption = False) -> None:
    """Let a team use a pool. For admins of the installation."""
    with Client() as client:
        found = client.pool.add_team(pool, team)
    show_done(f"{found.team.name} may use pool {pool}", found, json=json)


@teams_app.command("remove")
def remove_team(pool: PoolArgument, team: TeamArgument, json: JsonOption = False) -> None:
    """Take a pool from a team: its runs there take a checkpoint and go back to the queue. For admins of the
    installation."""
    with Client() as client:
        found = _team(client, pool, team)
        client.pool.remove_team(pool, found.team.id)
    show_done(f"{found.team.name} may no longer use pool {pool}", found, json=json)


@admins_app.command("list")
def list_admins(pool: PoolArgument, json: JsonOption = False) -> None:
    """Who was appointed; admins of the installation manage every pool besides."""
    with Client() as client:
        found = list(client.pool.admins(pool))
    show_list(found, ("ID", "USER", "SINCE"), lambda row: (row.id, row.username, row.appointed_at), json=json)


@admins_app.command("add")
def add_admin(
    pool: PoolArgument, username: Annotated[str, typer.Argument()], json: JsonOption = False
) -> None:
    """Appoint somebody whom every team of the pool trusts. For admins of the installation."""
    with Client() as client:
        found = client.pool.add_admin(pool, username)
    show_done(f"{found.username} manages pool {pool}", found, json=json)


@admins_app.command("remove")
def remove_admin(
    pool: PoolArgument, username: Annotated[str, typer.Argument()], json: JsonOption = False
) -> None:
    """Take the pool from an admin. For admins of the installation."""
    with Client() as client:
        found = next((row for row in client.pool.admins(pool) if username in (row.username, row.id)), None)
        if found is None:
            raise TyperException(
                f"{username!r} is no admin of pool {pool}; see: oolong pool admins list {pool}"
            )
        client.pool.remove_admin(pool, found.id)
    show_done(f"{found.username} no longer manages pool {pool}", found, json=json)


def _switch(said: Switch | None) -> bool | None:
    return None if said is None else said == "on"


def _team(client: Client, pool: str, named: str) -> Quota:
    """A team of the pool, by its id or name. Ids first: a team may be named as another's id is."""
    rows = list(client.pool.teams(pool))
    for row in [row for row in rows if row.team.id == named] + [
        row for row in rows if row.team.name == named
    ]:
        return row
    raise TyperException(f"{named!r} is no team of pool {pool}; see: oolong pool teams list {pool}")
