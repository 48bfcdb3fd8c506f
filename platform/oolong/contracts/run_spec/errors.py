"""The faults of a would-be RunSpec, as people are shown them."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from oolong.contracts.model_faults import SpecError, faults_of
from oolong.contracts.run_spec.reward_options import option_faults
from oolong.contracts.run_spec.spec import RunSpec

REWARD_SECTIONS = (("reward",), ("evaluation", "reward"))


def spec_errors(document: Any) -> list[SpecError]:
    """All faults of a would-be RunSpec document; empty when it is valid."""
    read = read_spec(document)
    return read if isinstance(read, list) else []


def read_spec(document: Any) -> RunSpec | list[SpecError]:
    """The RunSpec, or all faults of what would be one."""
    try:
        spec, faults = RunSpec.model_validate(document), []
    except ValidationError as error:
        spec, faults = None, faults_of(error, RunSpec)
    faults += [fault for section in REWARD_SECTIONS for fault in _reward_faults(document, section)]
    return spec if spec is not None and not faults else faults


def _reward_faults(document: Any, section: tuple[str, ...]) -> list[SpecError]:
    """Of the options of a built-in reward. An uploaded one's are known where its source is."""
    reward = document
    for name in section:
        reward = reward.get(name) if isinstance(reward, dict) else None
    if not isinstance(reward, dict) or reward.get("function") is not None:
        return []
    name, options = reward.get("name", "exact_match"), reward.get("options", {})
    if not isinstance(name, str) or not isinstance(options, dict):
        return []  # said already, as a fault of its type
    return option_faults(name, options, prefix=f"/{'/'.join(section)}/options")
