"""`oolong pool reservation …`, `oolong pool maintenance …` and `oolong pool quarantine …`"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, TypedDict

import typer
from typer.exceptions import TyperException

from oolong.cli.output import JsonOption, show_done, show_json, show_list
from oolong.client import Client
from oolong.client.models import MaintenanceWindow, Node, Reservation

reservation_app = typer.Typer(no_args_is_help=True, help="Slots that are reserved for a team for a time.")
maintenance_app = typer.Typer(no_args_is_help=True, help="Times in which nodes are maintained.")
quarantine_app = typer.Typer(
    no_args_is_help=True, help="Nodes on which no jobs start, because runs failed there."
)

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
InPool = Annotated[str, typer.Option("--pool", help="name of the pool")]
Start = Annotated[str | None, typer.Option(help="2026-11-20T10:00:00Z, or 2h from now; now when left out")]
End = Annotated[str | None, typer.Option(help="2026-11-20T18:00:00Z, or 8h from now")]
For = Annotated[str | None, typer.Option("--for", help="30m, 8h or 2d: how long it lasts, instead of --end")]
Nodes = Annotated[
    list[str] | None, typer.Option("--node", help="name or id of a node; repeat it for several")
]
Ended = Annotated[bool, typer.Option("--all", help="those that have ended too")]
NodeName = Annotated[str, typer.Argument(help="name or id of the node")]


@reservation_app.command("list")
def list_reservations(pool: InPool = "default", ended: Ended = False, json: JsonOption = False) -> None:
    """The reservations of a pool, the next one first."""
    with Client() as client:
        found = list(client.pool.reservations(pool, ended=ended))
    show_list(
        found,
        ("ID", "FOR", "SLOTS", "NODES", "START", "END", "STATE", "REASON"),
        lambda one: (
            one.id,
            _holder(one),
            one.slots,
            _chosen(one),
            one.starts_at,
            one.ends_at,
            one.state,
            one.reason,
        ),
        json=json,
    )


@reservation_app.command("create")
def create_reservation(
    team: Annotated[str, typer.Argument(help="id or name of a team that may use the pool")],
    slots: Annotated[
        int | None, typer.Option(min=1, help="number of slots, on nodes that the pool chooses")
    ] = None,
    node: Nodes = None,
    project: Annotated[
        str | None, typer.Option(help="id or name of a project whose runs alone get them")
    ] = None,
    device: Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="of the slots")] = None,
    start: Start = None,
    end: End = None,
    lasts: For = None,
    reason: Annotated[str | None, typer.Option(help="what for")] = None,
    pool: InPool = "default",
    json: JsonOption = False,
) -> None:
    """Reserve slots for a team: its runs start there beyond its quota. For those who manage the pool."""
    if (slots is None) == (not node):
        raise TyperException("give either --slots or --node")
    when = period(start, end, lasts)
    with Client() as client:
        made = client.pool.reserve(
            pool, team=team, project=project, slots=slots, nodes=node, device=device, reason=reason, **when
        )
    times = f"from {made.starts_at} until {made.ends_at}"
    message = f"{made.slots} slots of pool {pool} are reserved for {_holder(made)} {times}"
    show_done(f"{message}; to cancel: oolong pool reservation cancel {made.id}", made, json=json)


@reservation_app.command("cancel")
def cancel_reservation(
    reservation: Annotated[str, typer.Argument(help="id of the reservation (res_…)")],
    pool: InPool = "default",
    json: JsonOption = False,
) -> None:
    """Give the slots back to everybody; runs that use them stay. For those who manage the pool."""
    with Client() as client:
        client.pool.cancel_reservation(pool, reservation)
    show_done(f"reservation {reservation} is cancelled", {"cancelled": reservation}, json=json)


@maintenance_app.command("list")
def list_maintenance(pool: InPool = "default", ended: Ended = False, json: JsonOption = False) -> None:
    """The maintenance windows of a pool, the next one first."""
    with Client() as client:
        found = list(client.pool.maintenance(pool, ended=ended))
    show_list(
        found,
        ("ID", "NODES", "DRAINED FROM", "START", "END", "STATE", "REASON"),
        lambda one: (
            one.id, _nodes(one), one.drains_at, one.starts_at, one.ends_at, one.state, one.reason,
        ),
        json=json,
    )  # fmt: skip


@maintenance_app.command("create")
def create_maintenance(
    reason: Annotated[str, typer.Argument(help="shown to those who wait")],
    node: Nodes = None,
    whole_pool: Annotated[bool, typer.Option("--whole-pool", help="every node of the pool")] = False,
    start: Start = None,
    end: End = None,
    lasts: For = None,
    pool: InPool = "default",
    json: JsonOption = False,
) -> None:
    """Maintain nodes: they are drained before the start, and accept jobs again at the end. For those who manage the
    pool."""
    if whole_pool == bool(node):
        raise TyperException("give either --node or --whole-pool")
    when = period(start, end, lasts)
    with Client() as client:
        made = client.pool.maintain(pool, nodes=node, reason=reason, **when)
    times = f"from {made.starts_at} until {made.ends_at}, drained from {made.drains_at}"
    message = f"{_nodes(made)}: in maintenance {times}"
    show_done(f"{message}; to cancel: oolong pool maintenance cancel {made.id}", made, json=json)


@maintenance_app.command("cancel")
def cancel_maintenance(
    window: Annotated[str, typer.Argument(help="id of the window (mnt_…)")],
    pool: InPool = "default",
    json: JsonOption = False,
) -> None:
    """Cancel it: nodes that it drains accept jobs again. For those who manage the pool."""
    with Client() as client:
        client.pool.cancel_maintenance(pool, window)
    show_done(f"maintenance window {window} is cancelled", {"cancelled": window}, json=json)


@quarantine_app.command("list")
def list_quarantined(pool: InPool = "default", json: JsonOption = False) -> None:
    """The nodes of a pool that are quarantined, since when, and why."""
    with Client() as client:
        found = [node for node in client.pool.get(pool).nodes if node.quarantined_at is not None]
    show_list(
        found,
        ("ID", "NODE", "SINCE", "REASON"),
        lambda node: (node.id, node.name, node.quarantined_at, node.quarantine_reason),
        json=json,
    )


@quarantine_app.command("add")
def quarantine(
    node: NodeName,
    reason: Annotated[str, typer.Option(help="shown on the node until it is released")],
    pool: InPool = "default",
    json: JsonOption = False,
) -> None:
    """Start no new jobs on the node until it is released; running jobs continue."""
    with Client() as client:
        found = client.pool.quarantine(_node(client, pool, node), reason=reason)
    show_json(found) if json else print(found.status)


@quarantine_app.command("release")
def release(node: NodeName, pool: InPool = "default", json: JsonOption = False) -> None:
    """Let new jobs start on the node again; its failures until now do not count any more."""
    with Client() as client:
        found = client.pool.release(_node(client, pool, node))
    show_json(found) if json else print(found.status)


class Period(TypedDict, total=False):
    """As the API takes it. Without a start it begins now, by the clock of the control plane."""

    starts_at: str
    ends_at: str
    duration_seconds: int


def period(start: str | None, end: str | None, lasts: str | None, *, now: datetime | None = None) -> Period:
    now = now or datetime.now(UTC)
    if (end is None) == (lasts is None):
        raise TyperException("give either --end or --for")
    found = Period()
    if start is not None:
        found["starts_at"] = _text(_moment(start, "--start", now))
    if end is not None:
        found["ends_at"] = _text(_moment(end, "--end", now))
    else:
        found["duration_seconds"] = int(_duration(lasts or "", "--for").total_seconds())
    return found


def _moment(text: str, option: str, now: datetime) -> datetime:
    if text[-1:] in UNITS and text[:-1].isdecimal():
        return now + _duration(text, option)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise TyperException(
            f"{option} {text!r} is no time; write it like 2026-11-20T10:00:00Z, or 2h from now"
        ) from error
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _duration(text: str, option: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal() or int(number) == 0:
        raise TyperException(f"{option} {text!r} is no duration; write 90s, 30m, 2h or 1d")
    return timedelta(seconds=int(number) * UNITS[unit])


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _holder(one: Reservation) -> str:
    return f"{one.team.name}/{one.project.name}" if one.project is not None else one.team.name


def _chosen(one: Reservation) -> str:
    return ", ".join(part.node.name for part in one.allocation) or "chosen 24 h before the start"


def _nodes(one: MaintenanceWindow) -> str:
    return f"all of {one.pool}" if one.whole_pool else ", ".join(node.name for node in one.nodes)


def _node(client: Client, pool: str, named: str) -> str:
    """ID of a node of the pool, by its ID or name; IDs win."""
    nodes: list[Node] = client.pool.get(pool).nodes
    found = [node for node in nodes if node.id == named] or [node for node in nodes if node.name == named]
    if len(found) != 1:
        known = ", ".join(f"{node.name} ({node.id})" for node in nodes) or "none"
        raise TyperException(f"{named!r} is not one node of pool {pool}; its nodes: {known}")
    return found[0].id
