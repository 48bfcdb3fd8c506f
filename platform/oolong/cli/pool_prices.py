"""`oolong pool price …`"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal

import typer
from typer.exceptions import TyperException

from oolong.cli.output import JsonOption, show_json, show_table
from oolong.client import Client
from oolong.client.models import Prices

app = typer.Typer(no_args_is_help=True, help="What an hour of a slot costs.")

InPool = Annotated[str, typer.Option("--pool", help="name of the pool")]
Device = Annotated[Literal["cpu", "cuda"], typer.Argument(help="of the slots")]
Model = Annotated[
    str, typer.Option(help="GPU model as the pool shows it; every other model of the device when left out")
]


@app.command("list")
def list_prices(pool: InPool = "default", json: JsonOption = False) -> None:
    """The prices of a pool."""
    with Client() as client:
        _show(client.pool.prices(pool), json=json)


@app.command("set")
def set_price(
    device: Device,
    per_hour: Annotated[str, typer.Argument(help="of one slot, such as 2.50; none removes the price")],
    model: Model = "",
    pool: InPool = "default",
    json: JsonOption = False,
) -> None:
    """Set a price for leases from now on; what was used before keeps its price. For those who manage the pool."""
    price = None if per_hour == "none" else _number(per_hour)
    with Client() as client:
        _show(client.pool.set_price(pool, device=device, gpu_model=model, per_hour=price), json=json)


def _number(text: str) -> str:
    try:
        return str(Decimal(text))
    except InvalidOperation:
        raise TyperException(f"{text!r} is not a price: give a number such as 2.50, or none") from None


def _show(found: Prices, *, json: bool) -> None:
    if json:
        show_json(found)
        return
    show_table(
        ("DEVICE", "MODEL", f"{found.currency} PER HOUR"),
        ((one.device, one.gpu_model or "any other", one.per_hour) for one in found.prices),
    )
