"""The faults of a would-be RunSpec, as people are shown them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from oolong.contracts.run_spec.spec import RunSpec


class SpecError(BaseModel):
    """One fault of a submitted spec, as the API and the CLI show it."""

    pointer: str  # JSON pointer to the field, "/rollout/top_p"
    code: str
    message: str


_LONGEST_VALUE_SHOWN = 60
_BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}  # they name the bound alone


def said_with_value(kind: str, message: str, value: Any) -> str:
    """The message with the refused value, for the kinds of fault whose message lacks it."""
    if kind == "missing":
        return "required, and missing"
    if isinstance(value, (dict, list)) or (kind not in _BOUNDS and repr(value) in message):
        return message
    shown = repr(value)
    if len(shown) > _LONGEST_VALUE_SHOWN:
        shown = f"{shown[:_LONGEST_VALUE_SHOWN]}…"
    return f"{message}; it is {shown}"


def spec_errors(document: Any) -> list[SpecError]:
    """All faults of a would-be RunSpec document; empty when it is valid."""
    read = read_spec(document)
    return read if isinstance(read, list) else []


def read_spec(document: Any) -> RunSpec | list[SpecError]:
    """The RunSpec, or all faults of what would be one."""
    try:
        return RunSpec.model_validate(document)
    except ValidationError as error:
        return [
            SpecError(
                pointer="".join(
                    f"/{part}" for part in (*fault["loc"], *fault.get("ctx", {}).get("path", ()))
                ),
                code="unknown_key" if fault["type"] == "extra_forbidden" else fault["type"],
                message=(
                    f"unknown key {fault['loc'][-1]!r}; the RunSpec reference lists this section's keys"
                    if fault["type"] == "extra_forbidden"
                    else said_with_value(fault["type"], fault["msg"], fault["input"])
                ),
            )
            for fault in error.errors(include_url=False)
        ]
