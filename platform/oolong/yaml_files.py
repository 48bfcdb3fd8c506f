"""YAML as people write it by hand: what PyYAML would pass over in silence is an error with its line."""

from __future__ import annotations

import math
from typing import Any

import yaml


class YamlFault(ValueError):
    """The text is not valid YAML or repeats a key. The message names the line."""


def load_yaml(text: str) -> Any:
    """The document. Raises YamlFault for bad syntax, a key that a mapping has twice, and numbers that JSON lacks."""
    try:
        return _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        where = f"line {place.line + 1}: " if place is not None else ""
        raise YamlFault(f"{where}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise YamlFault(str(error)) from error


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
            if isinstance(key, str | int | float | bool | None) and key in lines:
                problem = f"the key {key!r} is there twice, first in line {lines[key]}; keep one of them"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if isinstance(key, str | int | float | bool | None):
                lines[key] = line
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found

    def construct_finite_float(self, node: yaml.ScalarNode) -> float:
        number = float(self.construct_yaml_float(node))
        if not math.isfinite(number):
            problem = f"{node.value} is no number that JSON has; write a finite one"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return number


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_finite_float)
