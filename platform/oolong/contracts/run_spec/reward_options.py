"""The options of the built-in rewards: one description for submission, the reward service and the reference."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from oolong.contracts.error_words import nearest
from oolong.contracts.model_faults import SpecError, faults_of
from oolong.contracts.run_spec.remote_rewards import REMOTE_OPTIONS
from oolong.contracts.run_spec.section import PositiveFloat, PositiveInt, Section, refuse

Text = Annotated[str, Field(min_length=1)]
NonNegativeFloat = Annotated[float, Field(ge=0)]


class ExactMatchOptions(Section):
    """1 if what the completion gives as its answer is the row's answer, else 0."""

    extract: Literal["boxed_at_end", "regex", "whole"] = Field(
        "boxed_at_end",
        description="the answer is the \\boxed{…} that ends the text, the first group of the last match of pattern, or "
        "the whole text",
    )
    pattern: Text | None = Field(None, description="extract: regex; for example 'Answer: (\\d+)'")
    ignore_case: bool = Field(False, description="compare without regard to case")

    @field_validator("pattern")
    @classmethod
    def _is_a_regular_expression(cls, value: str | None) -> str | None:
        return compiled(value)

    @model_validator(mode="after")
    def _pattern_goes_with_regex(self) -> Self:
        if self.extract == "regex" and self.pattern is None:
            message = "extract: regex needs a pattern, for example 'Answer: (\\d+)'"
            raise refuse("pattern_missing", message, "pattern")
        if self.extract != "regex" and self.pattern is not None:
            message = (
                f"pattern goes with extract: regex, not with extract: {self.extract}; leave one of them out"
            )
            raise refuse("pattern_unused", message, "pattern")
        return self


class MathOptions(Section):
    """1 if the completion's last boxed answer equals the row's as text, number or by symbolic algebra, else 0."""

    extract: Literal["boxed", "whole"] = Field(
        "boxed", description="the last \\boxed{…}, or the whole text is handed to the symbolic comparison"
    )


class FormatOptions(Section):
    """1 if the completion has the form that is asked for, else 0. Exactly one of tags and pattern."""

    tags: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None,
        description="[think, answer]: the text is <think>…</think><answer>…</answer>, each tag once, in order",
    )
    pattern: Text | None = Field(None, description="a regular expression that the whole text must match")

    @field_validator("pattern")
    @classmethod
    def _is_a_regular_expression(cls, value: str | None) -> str | None:
        return compiled(value)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.tags is None) == (self.pattern is None):
            raise refuse(
                "tags_or_pattern", "give one of tags and pattern, for example tags: [think, answer]", "tags"
            )
        return self


class LengthOptions(Section):
    """Shaping by length: 1 up to full_until, then falling in a straight line to 0 at zero_from."""

    full_until: NonNegativeFloat = Field(description="up to this length the score is 1")
    zero_from: PositiveFloat = Field(description="from this length on it is 0; above full_until")
    unit: Literal["characters", "words"] = Field("characters", description="what is counted")

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.zero_from <= self.full_until:
            message = f"zero_from={self.zero_from:g} must be greater than full_until={self.full_until:g}"
            raise refuse("length_bounds", message, "zero_from")
        return self


class CodeOptions(Section):
    """1 if the completion's Python passes every test of its row, else 0 or the share of tests it passes."""

    extract: Literal["fence", "whole"] = Field(
        "fence", description="the last fenced block, one that says python if there is one, or the whole text"
    )
    score: Literal["all", "share"] = Field(
        "all", description="1 only for all tests, or the share that passes"
    )
    timeout_seconds: PositiveFloat = Field(6.0, description="processor time of one test")
    memory_mib: PositiveInt = Field(512, description="memory of one test")
    max_tests: PositiveInt = Field(10_000, description="the first so many tests of a row count")


class CompositePart(Section):
    name: Text = Field(description="a built-in reward, not composite")
    weight: float = Field(1.0, description="its score is multiplied by this")
    options: dict[str, Any] = Field(default_factory=dict, description="of that reward")


class CompositeOptions(Section):
    """A weighted sum of other built-in rewards; the score of each part is kept."""

    parts: Annotated[list[CompositePart], Field(min_length=1)] = Field(
        description="[{name: exact_match}, {name: format, weight: 0.2, options: {tags: [think, answer]}}]"
    )


REWARD_OPTIONS: dict[str, type[Section]] = {
    "exact_match": ExactMatchOptions,
    "math": MathOptions,
    "code": CodeOptions,
    "format": FormatOptions,
    "length": LengthOptions,
    "composite": CompositeOptions,
    **REMOTE_OPTIONS,
}


def option_faults(name: str, options: dict[str, Any], *, prefix: str = "") -> list[SpecError]:
    """All faults of the options of a built-in reward, those of a composite's parts included. None for other names."""
    model = REWARD_OPTIONS.get(name)
    if model is None:
        return []
    try:
        model.model_validate(options)
        faults = []
    except ValidationError as error:
        faults = faults_of(error, model, prefix=prefix)
    parts = options.get("parts") if model is CompositeOptions else None
    for number, part in enumerate(parts if isinstance(parts, list) else ()):
        if isinstance(part, dict) and isinstance(part.get("name"), str):
            faults += _part_faults(part["name"], part.get("options", {}), prefix=f"{prefix}/parts/{number}")
    return faults


def _part_faults(name: str, options: Any, *, prefix: str) -> list[SpecError]:
    if name == "composite":
        message = "a composite holds no other composite; list its parts here instead"
        return [SpecError(pointer=f"{prefix}/name", code="nested_composite", message=message)]
    if name not in REWARD_OPTIONS:
        known = [one for one in REWARD_OPTIONS if one != "composite"]
        message = f"there is no built-in reward {name!r}{nearest(name, known)}; known: {', '.join(known)}"
        return [SpecError(pointer=f"{prefix}/name", code="unknown_reward", message=message)]
    return option_faults(name, options, prefix=f"{prefix}/options") if isinstance(options, dict) else []


def compiled(pattern: str | None) -> str | None:
    """The pattern, once it is known to be a regular expression."""
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise refuse("not_a_pattern", f"not a regular expression: {error}") from error
    return pattern
