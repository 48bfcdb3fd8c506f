"""How long a token lives: the options of the commands that make one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

DaysOption = Annotated[int | None, typer.Option(min=1, help="expires after this many days; 90 when left out")]
NoExpiryOption = Annotated[bool, typer.Option("--no-expiry", help="never expires: revoke it yourself")]


def expiry_of(days: int | None, *, no_expiry: bool) -> str | None:
    """The moment as the API takes it; None where none was named. Raises BadParameter when both options are given."""
    if days is not None and no_expiry:
        raise typer.BadParameter(f"--days {days} and --no-expiry exclude each other", param_hint="--days")
    return None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat()
