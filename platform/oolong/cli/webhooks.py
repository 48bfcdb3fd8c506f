"""`oolong webhook …`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oolong.cli.output import JsonOption, show_done, show_json, show_list, show_secret
from oolong.client import Client
from oolong.client.models import CreatedWebhook

app = typer.Typer(
    no_args_is_help=True, help="Webhooks: notify other services of runs, alerts and checkpoints."
)
WebhookArgument = Annotated[str, typer.Argument(help="id of the webhook (whk_…)")]
DeliveryArgument = Annotated[str, typer.Argument(help="id of the delivery (whd_…)")]


@app.command()
def create(
    name: Annotated[str, typer.Option(help="what it is for")],
    url: Annotated[str, typer.Option(help="the https address to notify")],
    event: Annotated[list[str], typer.Option("--event", help="a type, or run.*; repeatable")],
    json: JsonOption = False,
) -> None:
    """Make a webhook. Its secret is shown this once."""
    with Client() as client:
        _show_secret(client.webhooks.create(name, url, event), json=json)


@app.command("list")
def list_webhooks(json: JsonOption = False) -> None:
    """The project's webhooks."""
    with Client() as client:
        found = list(client.webhooks.list())
    show_list(
        found,
        ("ID", "NAME", "URL", "EVENTS", "STATE"),
        lambda hook: (
            hook.id,
            hook.name,
            hook.url,
            ",".join(hook.events),
            "on" if hook.enabled else hook.disabled_reason,
        ),
        json=json,
    )


@app.command("set")
def set_webhook(
    webhook: WebhookArgument,
    name: Annotated[str | None, typer.Option()] = None,
    url: Annotated[str | None, typer.Option()] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", help="replaces the events; repeatable")
    ] = None,
    on: Annotated[bool | None, typer.Option("--on/--off", help="turn it on or off")] = None,
    json: JsonOption = False,
) -> None:
    """Change a webhook, or turn it on again."""
    given = {"name": name, "url": url, "events": event, "enabled": on}
    fields: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if not fields:
        raise typer.BadParameter("nothing to change: give --name, --url, --event, --on or --off")
    with Client() as client:
        changed = client.webhooks.update(webhook, **fields)
    show_json(changed) if json else print(f"{changed.id} is {'on' if changed.enabled else 'off'}")


@app.command()
def delete(webhook: WebhookArgument, json: JsonOption = False) -> None:
    """Remove a webhook and its log."""
    with Client() as client:
        client.webhooks.delete(webhook)
    show_done(f"{webhook} is gone", {"deleted": webhook}, json=json)


@app.command()
def rotate(webhook: WebhookArgument, json: JsonOption = False) -> None:
    """A new secret, shown this once. For a day both sign."""
    with Client() as client:
        _show_secret(client.webhooks.rotate_secret(webhook), json=json)


@app.command("test")
def send_test(webhook: WebhookArgument, json: JsonOption = False) -> None:
    """Send a webhook.test. Prints the delivery's id."""
    with Client() as client:
        made = client.webhooks.test(webhook)
    show_json(made) if json else print(made.id)


@app.command()
def deliveries(
    webhook: WebhookArgument,
    limit: Annotated[int, typer.Option(min=1, help="at most this many, newest first")] = 20,
    json: JsonOption = False,
) -> None:
    """List deliveries, newest first."""
    with Client() as client:
        found = [row for row, _ in zip(client.webhooks.deliveries(webhook), range(limit), strict=False)]
    show_list(
        found,
        ("ID", "EVENT", "STATE", "TRIES", "STATUS", "MS", "MESSAGE"),
        lambda row: (
            row.id, row.event.type, row.state, row.tries, row.log[-1].status if row.log else None,
            row.log[-1].milliseconds if row.log else None, row.message or None,
        ),
        json=json,
    )  # fmt: skip


@app.command()
def redeliver(delivery: DeliveryArgument, json: JsonOption = False) -> None:
    """Send the event of a delivery once more. Prints the new delivery's id."""
    with Client() as client:
        made = client.webhooks.redeliver(delivery)
    show_json(made) if json else print(made.id)


def _show_secret(made: CreatedWebhook, *, json: bool) -> None:
    show_secret(f"{made.id}: its secret is shown this once.", made.secret, made, json=json)
