"""The error for a model that cannot be used."""

from __future__ import annotations

from oolong.client.errors import FieldError, Invalid
from oolong.client.models import Model


def refuse_unusable(model: Model) -> None:
    """Raise Invalid with every fault."""
    if model.state == "INVALID":
        errors = tuple(FieldError(error.pointer, error.code, error.message) for error in model.errors)
        raise Invalid(422, code="model_invalid", detail=f"{model.id}: {model.message}", errors=errors)
