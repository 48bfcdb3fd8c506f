"""Renders the chart's templates where no helm is: the part of the language that they use, and nothing more.

An action, a function or a field that this does not know fails, so a template cannot quietly use more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.S)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\||[^\s|]+')


class RenderError(Exception):
    pass


@dataclass
class Block:
    """if … else … end, define … end, or the whole file."""

    head: str
    body: list[Any] = field(default_factory=list)  # str, Block, or ("action", text)
    otherwise: list[Any] = field(default_factory=list)


class Chart:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.meta = yaml.safe_load((folder / "Chart.yaml").read_text())
        self.values = yaml.safe_load((folder / "values.yaml").read_text())
        self.named: dict[str, Block] = {}
        _parse((folder / "templates" / "_helpers.tpl").read_text(), self.named)

    def render(self, name: str, values: Mapping[str, Any], *, release: str = "oolong") -> str:
        """One template as text; `values` are laid over those of values.yaml."""
        scope = {
            "Values": merged(self.values, values), "Release": {"Name": release},
            "Chart": {"AppVersion": self.meta["appVersion"], "Name": self.meta["name"]},
        }  # fmt: skip
        block = _parse((self.folder / "templates" / name).read_text(), self.named)
        return self._write(block.body, scope)

    def objects(self, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Every object of every template."""
        found = []
        for file in sorted((self.folder / "templates").glob("*.yaml")):
            text = self.render(file.name, values)
            try:
                found += [item for item in yaml.safe_load_all(text) if item]
            except yaml.YAMLError as error:
                raise RenderError(f"{file.name} is no YAML: {error}\n{text}") from error
        return found

    def _write(self, nodes: list[Any], scope: Mapping[str, Any]) -> str:
        return "".join(self._node(node, scope) for node in nodes)

    def _node(self, node: Any, scope: Mapping[str, Any]) -> str:
        if isinstance(node, str):
            return node
        if isinstance(node, Block):
            if node.head.startswith("define "):
                return ""
            chosen = node.body if self._value(node.head.removeprefix("if "), scope) else node.otherwise
            return self._write(chosen, scope)
        value = self._value(node[1], scope)
        if value is None:
            raise RenderError(f"{{{{ {node[1]} }}}} has no value")
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _value(self, text: str, scope: Mapping[str, Any]) -> Any:
        """A pipeline: each function gets what came before as its last argument."""
        words = _WORD.findall(text)
        steps: list[list[str]] = [[]]
        for word in words:
            steps.append([]) if word == "|" else steps[-1].append(word)
        value: Any = None
        for number, step in enumerate(steps):
            given = [self._term(word, scope) for word in step[1:]]
            value = (
                self._call(step[0], given + ([value] if number else []), scope)
                if re.fullmatch(r"[a-z]\w*", step[0])
                else self._term(step[0], scope)
            )
        return value

    def _term(self, word: str, scope: Mapping[str, Any]) -> Any:
        if word == ".":
            return scope
        if word.startswith('"'):
            return word[1:-1]
        if word.isdecimal():
            return int(word)
        if not word.startswith("."):
            raise RenderError(f"{word!r} is neither a field, a text nor a number")
        value: Any = scope
        for name in word[1:].split("."):
            if not isinstance(value, Mapping) or name not in value:
                raise RenderError(f"there is no {word}")
            value = value[name]
        return value

    def _call(self, name: str, given: list[Any], scope: Mapping[str, Any]) -> Any:
        match name, given:
            case "include", [template, inner]:
                if template not in self.named:
                    raise RenderError(f"there is no template {template!r}")
                return self._write(self.named[template].body, inner)
            case "nindent", [width, text]:
                return "\n" + "\n".join(
                    " " * width + line if line else line for line in str(text).split("\n")
                )
            case "toYaml", [value]:
                return yaml.safe_dump(value, sort_keys=True).rstrip("\n")
            case "quote", [value]:
                return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
            case "default", [fallback, value]:
                return value or fallback
            case "required", [message, value]:
                if not value:
                    raise RenderError(message)
                return value
            case "not", [value]:
                return not value
        raise RenderError(f"the function {name} with {len(given)} argument(s) is not known here")


def merged(below: Any, above: Any) -> Any:
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    found = {**below, **above}
    for name in set(below) & set(above):
        found[name] = merged(below[name], above[name])
    return found


def _parse(text: str, named: dict[str, Block]) -> Block:
    stack = [Block("")]
    in_otherwise = [False]
    for kind, piece in _pieces(text):
        target = stack[-1].otherwise if in_otherwise[-1] else stack[-1].body
        if kind == "text":
            target.append(piece)
        elif piece.startswith(("if ", "define ")):
            stack.append(Block(piece))
            in_otherwise.append(False)
        elif piece == "else":
            in_otherwise[-1] = True
        elif piece == "end":
            if len(stack) == 1:
                raise RenderError("an end without a beginning")
            block = stack.pop()
            in_otherwise.pop()
            (stack[-1].otherwise if in_otherwise[-1] else stack[-1].body).append(block)
            if block.head.startswith("define "):
                named[block.head.removeprefix("define ").strip('"')] = block
        else:
            target.append(("action", piece))
    if len(stack) != 1:
        raise RenderError(f"{stack[-1].head!r} has no end")
    return stack[0]


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    position, trim = 0, False
    for found in _ACTION.finditer(text):
        between = text[position : found.start()]
        if trim:
            between = between.lstrip()
        if found[1]:
            between = between.rstrip()
        yield "text", between
        yield "action", found[2]
        position, trim = found.end(), bool(found[3])
    rest = text[position:]
    yield "text", rest.lstrip() if trim else rest
