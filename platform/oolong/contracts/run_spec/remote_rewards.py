"""Options of the rewards that a service elsewhere gives, and which services a spec names."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from oolong.contracts.error_words import nearest
from oolong.contracts.run_spec.section import NonNegativeFloat, PositiveInt, Section, refuse

Text = Annotated[str, Field(min_length=1)]

# So narrow that all readers of URLs agree about the host.
_URL = re.compile(r"https?://(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?][!-~]*)?")
TEMPLATE_NAMES = ("prompt", "answer", "response")


class RemoteOptions(Section):
    """What every reward has that asks a service."""

    url: Text = Field(
        description="address of the service; an installation admin allows its origin in OOLONG_REWARD_ORIGINS"
    )
    secret: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")] | None = Field(
        None,
        description="project secret that is sent as bearer token; an admin allows it for the host and for the reward "
        "job",
    )
    concurrency: Annotated[int, Field(ge=1, le=64)] = Field(8, description="requests at once at most")
    attempts: Annotated[int, Field(ge=1, le=10)] = Field(
        5,
        description="of a request, in all: after a lost connection, a timeout, and the statuses 408, 429 and 5xx it "
        "is sent again. reward.timeout_seconds is the time of one",
    )

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if not _URL.fullmatch(value) or "\\" in value or "#" in value:
            message = (
                f"{value!r:.200} is no address of a service: give http:// or https://, an ASCII host, and a path "
                "without spaces, for example https://rewards.example.com/score; a user name or password does not "
                "belong in it"
            )
            raise refuse("not_an_address", message)
        return value


class HttpOptions(RemoteOptions):
    """The score that a service of yours returns for the completion, over HTTP in batches."""

    batch_size: Annotated[int, Field(ge=1, le=256)] = Field(
        16, description="completions of a request at most; a request never waits for more"
    )


class JudgeOptions(RemoteOptions):
    """The score that a language model gives the completion, behind an OpenAI-compatible chat endpoint."""

    model: Text = Field(description="model of the request, as the endpoint names it")
    template: Text = Field(
        description="the user's message to the judge: {prompt}, {answer} and {response} become JSON strings, {{ and }} "
        "are braces"
    )
    system: Text | None = Field(None, description="a system message before it, as it is")
    parse: Literal["json", "regex"] = Field(
        "json",
        description="json: the whole reply is one JSON object, possibly in a ```json fence; regex: the group of the "
        "last match of pattern",
    )
    field: Text = Field("score", description="parse: json; the number of the object that is the score")
    pattern: Text | None = Field(
        None, description="parse: regex; with one group, for example 'Score: (\\d+)'"
    )
    low: float = Field(0.0, description="lowest score that the judge may give")
    high: float = Field(1.0, description="highest score that the judge may give; above low")
    scale: Literal["unit", "as_given"] = Field(
        "unit", description="unit: low becomes 0 and high 1; as_given: the score as the judge gave it"
    )
    max_tokens: PositiveInt = Field(512, description="of a reply at most; one that is cut off is an error")
    temperature: NonNegativeFloat = Field(0.0, description="of the judge")
    votes: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="requests for each completion; the score is their mean, and all must give one"
    )

    @field_validator("template")
    @classmethod
    def _names_what_there_is(cls, value: str) -> str:
        names = template_names(value)
        if "response" not in names:
            message = "the template has no {response}, so every completion would get the same score; add it"
            raise refuse("template_without_response", message)
        return value

    @field_validator("pattern")
    @classmethod
    def _has_one_group(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                groups = re.compile(value).groups
            except re.error as error:
                raise refuse("not_a_pattern", f"not a regular expression: {error}") from error
            if groups != 1:
                message = f"has {groups} groups; the one group is the score, for example 'Score: (\\d+)'"
                raise refuse("pattern_groups", message)
        return value

    @model_validator(mode="after")
    def _one_rule_and_a_range(self) -> Self:
        if self.parse == "regex" and self.pattern is None:
            message = "parse: regex needs a pattern, for example 'Score: (\\d+)'"
            raise refuse("pattern_missing", message, "pattern")
        if self.parse != "regex" and self.pattern is not None:
            message = f"pattern goes with parse: regex, not with parse: {self.parse}; leave one of them out"
            raise refuse("pattern_unused", message, "pattern")
        if self.high <= self.low:
            raise refuse("score_bounds", f"high={self.high:g} must be greater than low={self.low:g}", "high")
        return self


def template_names(template: str) -> set[str]:
    """The names that a judge's template uses. Raises the refusal for anything but plain {name} and {{, }}."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        message = f"the template is malformed: {error}; write {{{{ and }}}} for braces"
        raise refuse("template", message) from error
    names = set()
    for _, name, form, conversion in parsed:
        if name is None:
            continue
        if form or conversion or name not in TEMPLATE_NAMES:
            whole = f"{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}"
            known = ", ".join(f"{{{one}}}" for one in TEMPLATE_NAMES)
            message = (
                f"the template has {{{whole:.60}}}{nearest(name, TEMPLATE_NAMES)}; it may use {known}, and {{{{ and "
                "}} for braces"
            )
            raise refuse("unknown_name", message)
        names.add(name)
    return names


REMOTE_OPTIONS: dict[str, type[RemoteOptions]] = {"http": HttpOptions, "judge": JudgeOptions}


def secret_variable(name: str) -> str:
    """The variable of the reward job's environment that holds this secret of a remote reward."""
    return f"REWARD_SECRET_{name}"


@dataclass(frozen=True, kw_only=True)
class RemoteReward:
    """A service that a spec's reward asks."""

    pointer: str  # of its options
    name: str
    options: RemoteOptions


def remote_rewards(spec: Mapping[str, Any]) -> list[RemoteReward]:
    """The services that the reward job of a valid spec asks: of the training's reward, of the evaluation's, and of
    parts of composites."""
    if spec.get("kind") == "sft":
        return []
    evaluation = (spec.get("evaluation") or {}).get("reward")
    found = _of_section(spec.get("reward") or {}, "/reward")
    return found + (_of_section(evaluation, "/evaluation/reward") if evaluation else [])


def _of_section(section: Mapping[str, Any], pointer: str) -> list[RemoteReward]:
    if section.get("function") is not None:
        return []
    name, options = section.get("name", ""), section.get("options") or {}
    if name in REMOTE_OPTIONS:
        valid = REMOTE_OPTIONS[name].model_validate(options)
        return [RemoteReward(pointer=f"{pointer}/options", name=name, options=valid)]
    parts = options.get("parts", []) if name == "composite" else []
    return [
        found
        for number, part in enumerate(parts)
        for found in _of_section(part, f"{pointer}/options/parts/{number}")
    ]
