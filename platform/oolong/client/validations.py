"""The error for rows that cannot be used."""

from __future__ import annotations

from oolong.client.errors import FieldError, Invalid
from oolong.client.models import DatasetValidation


def refuse_invalid(validation: DatasetValidation) -> None:
    """Raise Invalid when the rows have faults: nothing of them was stored."""
    if validation.valid:
        return
    errors = tuple(FieldError(error.pointer, error.code, error.message) for error in validation.errors)
    detail = f"{validation.message}; nothing was stored"
    raise Invalid(422, code="rows_invalid", detail=detail, errors=errors)
