"""What the sections of a RunSpec are built of."""

from __future__ import annotations

import typing
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from oolong.contracts.error_words import shown
from oolong.contracts.model_faults import non_finite

LARGEST = 2**31 - 1  # what a column of the database holds
PositiveInt = Annotated[int, Field(ge=1, le=LARGEST)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]


def refuse(code: str, message: str, *path: str | int) -> PydanticCustomError:
    """A rule's refusal; `path` is where the reader should look (it becomes the JSON pointer)."""
    return PydanticCustomError(code, message, {"path": list(path)})


class Section(BaseModel):
    # Infinity and NaN are no JSON: neither the database nor a node would take the spec.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_json_and_no_number_is_true(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic takes true for 1, and looks for NaN only where a number is declared."""
        assert info.field_name is not None
        annotation = cls.model_fields[info.field_name].annotation
        if isinstance(value, bool) and not _takes(annotation, bool) and _takes(annotation, int, float):
            raise refuse(
                "bool_for_number",
                f"must be a number; it is {shown(value)} (YAML reads yes, no, on and off so)",
            )
        if isinstance(value, (dict, list)) and (path := non_finite(value)) is not None:
            found: Any = value
            for part in path:
                found = found[part]
            if _takes(annotation, Any):
                raise refuse("not_finite", f"must be a finite number; it is {shown(found)}", *path)
        return value


def _takes(annotation: Any, *wanted: Any) -> bool:
    return annotation in wanted or any(_takes(part, *wanted) for part in typing.get_args(annotation))
