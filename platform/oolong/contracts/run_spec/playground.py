"""A chat with one model on a slot that nobody needs."""

from __future__ import annotations

from pydantic import Field

from oolong.contracts.run_spec.section import PositiveInt, Section


class PlaygroundSection(Section):
    """Of kind: playground. Submitted by POST /api/v1/playgrounds."""

    idle_seconds: PositiveInt = Field(600, description="without a request for so long, the slot is released")
    scores: bool = Field(False, description="replies can be scored by the reward section's function")
