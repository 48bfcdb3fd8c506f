"""OpenAPI links: which answers carry the ids that the paths and bodies of other operations name.

Nothing is listed per operation. A placeholder names the objects that its own address and the collection above it
answer: `{run_id}` of `/runs/{run_id}/…` is the `id` of what `/runs` and `/runs/{run_id}` answer. Only names that no
address explains stand in PLACEHOLDERS and FIELDS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# Placeholders of paths that no address explains, and the component that each names.
PLACEHOLDERS = {
    "attempt_id": "Attempt",
    "function_version_id": "FunctionVersion",
    "job_id": "Job",
    "node_id": "Node",
    "upload_id": "UploadReply",
}
# The same of required query parameters and fields of bodies.
FIELDS = {
    "checkpoint": "Checkpoint",
    "from": "Version",
    "upload_id": "Upload",
    "validation_id": "DatasetValidation",
}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class _Operation:
    path: str
    definition: dict[str, Any]

    @property
    def placeholders(self) -> list[str]:
        return _PLACEHOLDER.findall(self.path)

    def required_queries(self) -> list[str]:
        parameters = self.definition.get("parameters", [])
        return [one["name"] for one in parameters if one["in"] == "query" and one.get("required")]

    def answers(self) -> Iterator[tuple[dict[str, Any], str]]:
        """The 2xx answers with a component of the document in them: the answer, and the component's name."""
        for status, answer in self.definition["responses"].items():
            content = answer.get("content", {}).get("application/json", {})
            if status.startswith("2") and (name := _component(content.get("schema", {}))):
                yield answer, name


def add_links(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing: link each answer to the operations that it has the names for."""
    operations = [
        _Operation(path, definition)
        for path, methods in result["paths"].items()
        for definition in methods.values()
    ]
    graph = _Graph(operations, result["components"]["schemas"])
    for source in operations:
        for answer, component in source.answers():
            links = {
                target.definition["operationId"]: link
                for target in operations
                if (link := graph.link(source, component, target)) is not None
            }
            if links:
                answer["links"] = links
    return result


class _Graph:
    def __init__(self, operations: list[_Operation], components: dict[str, Any]) -> None:
        self._components = components
        self._answered: dict[
            str, set[str]
        ] = {}  # path → components that its operations answer, items of pages too
        for operation in operations:
            for _, component in operation.answers():
                found = self._item(component) or component
                self._answered.setdefault(operation.path, set()).add(found)
        self._by_name = {name: {component} for name, component in PLACEHOLDERS.items()}
        for operation in operations:
            for name in operation.placeholders:
                self._by_name.setdefault(name, set()).update(self._at_address(operation.path, name))

    def link(self, source: _Operation, component: str, target: _Operation) -> dict[str, Any] | None:
        """The link from an answer of the source; None where it has nothing that the target asks for."""
        found: dict[str, str] = {}
        for name in target.placeholders:
            named = self._at_address(target.path, name) or self._by_name[name]
            if name in source.placeholders:
                found[name] = f"$request.path.{name}"
            elif pointer := self._pointer(component, named, name, _keys(name)):
                found[name] = f"$response.body#{pointer}"
            elif named or name.endswith("_id"):
                return None  # it names an object that this answer does not have
        for name in target.required_queries():
            named = {FIELDS[name]} if name in FIELDS else self._answered.get(target.path, set())
            if pointer := self._pointer(component, named, name, (name, "ref", "name", "id")):
                found[name] = f"$response.body#{pointer}"
        body = self._body(component, target)
        if body is None and not any(value.startswith("$response") for value in found.values()):
            return None
        link: dict[str, Any] = {"operationId": target.definition["operationId"]}
        if found:
            link["parameters"] = found
        if body is not None:
            link["requestBody"] = body
        return link

    def _at_address(self, path: str, name: str) -> set[str]:
        """What the address that ends with the placeholder answers, and the collection above it."""
        collection = path.partition(f"/{{{name}}}")[0]
        found = self._answered.get(f"{collection}/{{{name}}}", set()) | self._answered.get(collection, set())
        return {component for component in found if self._key(component, _keys(name))}

    def _key(self, component: str, keys: Iterable[str]) -> str:
        properties = self._components.get(component, {}).get("properties", {})
        return next((key for key in keys if key in properties), "")

    def _pointer(self, component: str, named: set[str], name: str, keys: Iterable[str]) -> str:
        """Where in the answer the name stands: in it, in the first of its page, or in an object that it shows."""
        at, item = "", self._item(component)
        if item:
            at, component = "/data/0", item
        if component in named and (key := self._key(component, keys)):
            return f"{at}/{key}"
        for field, value in self._components[component].get("properties", {}).items():
            listed = value.get("type") == "array"
            shown = _component(value.get("items", {}) if listed else value)
            if (shown in named or (not named and name == f"{field}_id")) and (key := self._key(shown, keys)):
                return f"{at}/{field}{'/0' if listed else ''}/{key}"
        return ""

    def _body(self, component: str, target: _Operation) -> dict[str, str] | None:
        """The whole body of the target, where what it requires are names that this answer has."""
        content = target.definition.get("requestBody", {}).get("content", {}).get("application/json", {})
        form = self._components.get(_component(content.get("schema", {})), {})
        required = form.get("required", [])
        found = {
            name: f"$response.body#{pointer}"
            for name in required
            if name in FIELDS and (pointer := self._pointer(component, {FIELDS[name]}, name, (name, "id")))
        }
        return found if found and len(found) == len(required) else None

    def _item(self, component: str) -> str:
        """The component in the `data` of a page, or nothing where this is no page."""
        data = self._components[component].get("properties", {}).get("data", {})
        return _component(data.get("items", {})) if data.get("type") == "array" else ""


def _component(schema: dict[str, Any]) -> str:
    """The name of the component that a schema refers to, bare or as the one choice beside null."""
    for wrapper in ("allOf", "oneOf"):
        if wrapper in schema:
            choices = [one for one in schema[wrapper] if one.get("type") != "null"]
            return _component(choices[0]) if len(choices) == 1 else ""
    return str(schema.get("$ref", "")).removeprefix("#/components/schemas/")


def _keys(name: str) -> tuple[str, str]:
    """The fields of a component that a placeholder may name."""
    return (name, "id" if name.endswith("_id") else "name")
