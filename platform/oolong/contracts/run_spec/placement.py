"""What a run may use of the pool."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from oolong.contracts.run_spec.section import PositiveInt, Section


class BudgetSection(Section):
    max_wall_seconds: PositiveInt | None = Field(
        None, description="the run is stopped, with a checkpoint, after this long"
    )
    max_attempts: PositiveInt = Field(3, description="attempts that may be lost to the user's own faults")


class PlacementSection(Section):
    pool: str = Field("default", description="pool whose slots are used")
    priority: Annotated[int, Field(ge=0, le=1000)] = Field(500, description="higher goes first")
