"""Headers that the document names: required ones are asked for, the others may be left out, bad ones are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from control_plane.core.api.schema import LONGEST_IDEMPOTENCY_KEY, example_requests
from tests.api.fuzzing import bearer_of
from tests.unit.control_plane.access.objects import World

PATHS = {"number": "0"}  # of no object
# Left out: `Range` asks for a part of a file (tests/unit/control_plane/assets), and bytes may come without a hash.
OPTIONAL = {"Range", "X-Content-SHA256"}


@pytest.fixture(scope="module")
def named() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """`POST /runs`, its operation, and one of the headers that it names."""
    schema = SchemaGenerator(api_version="v1").get_schema(request=None, public=True)
    return [
        (f"{method.upper()} {path.removeprefix('/api/v1')}", operation, parameter)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "header"
    ]


def ask(world: World, name: str, operation: dict[str, Any], headers: dict[str, str]) -> Any:
    """With the body of the document's example, in the world as it was built."""
    method, path = name.split()
    for place, identity in {**PATHS, **world.ids}.items():
        path = path.replace(f"{{{place}}}", identity)
    body = example_requests().get(operation["operationId"], {}) if "requestBody" in operation else None
    given = {"authorization": f"Bearer {bearer_of(world, name)}", **headers}
    with transaction.atomic():
        client = Client()
        data = b"" if body is None else json.dumps(body).encode()
        reply = client.generic(method, f"/api/v1{path}", data, "application/json", headers=given)
        transaction.set_rollback(True)
    return reply


def test_headers_are_asked_for_and_checked_as_the_document_says(
    world: World, named: list[tuple[str, dict[str, Any], dict[str, Any]]]
) -> None:
    asked = set()
    for name, operation, parameter in named:
        header = parameter["name"]
        asked.add(header)
        if header == "X-Part-SHA256":
            assert parameter["required"], name
            for given in ({}, {header: "0" * 64}):
                reply = ask(world, name, operation, given)
                assert reply.status_code == 422, (name, given, reply.content)
        elif header == "If-Match":
            assert not parameter.get("required"), name
            refused = ask(world, name, operation, {header: '"of-another-state"'})
            assert refused.status_code == 412, (name, refused.content)
            assert ask(world, name, operation, {}).status_code != 412, name
        elif header == "Idempotency-Key":
            assert not parameter.get("required"), name
            assert parameter["schema"]["maxLength"] == LONGEST_IDEMPOTENCY_KEY
            refused = ask(world, name, operation, {header: "k" * (LONGEST_IDEMPOTENCY_KEY + 1)})
            assert (refused.status_code, header in refused.json()["detail"]) == (422, True), name
        else:
            assert header in OPTIONAL and not parameter.get("required"), name
    assert asked == {"X-Part-SHA256", "If-Match", "Idempotency-Key"} | OPTIONAL
