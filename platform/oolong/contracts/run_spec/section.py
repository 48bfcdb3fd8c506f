"""What the sections of a RunSpec are built of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

LARGEST = 2**31 - 1  # what a column of the database holds
PositiveInt = Annotated[int, Field(ge=1, le=LARGEST)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST)]
PositiveFloat = Annotated[float, Field(gt=0)]


def refuse(code: str, message: str, *path: str | int) -> PydanticCustomError:
    """A rule's refusal; `path` is where the reader should look (it becomes the JSON pointer)."""
    return PydanticCustomError(code, message, {"path": list(path)})


class Section(BaseModel):
    # Infinity and NaN are no JSON: neither the database nor a node would take the spec.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
