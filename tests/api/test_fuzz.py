"""Every operation of the OpenAPI document with made-up input: no server error, and no answer without a credential.

Input is drawn from the document itself by schemathesis, the same in every run: half of it fits the schemas, half breaks
them in one place. Names of objects are real ones half of the time, so that handlers are reached.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import got_request_exception, request_finished, request_started
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode

from tests.unit.control_plane.access.objects import World, build_world
from tests.unit.control_plane.access.routes import NODE, ROUTES

EXAMPLES = int(os.environ.get("OOLONG_FUZZ_EXAMPLES", "4"))  # of each operation and each of the two modes
QUIETLY = settings(
    max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, print_blob=False,
    phases=[Phase.generate], suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture
def world(transactional_db: None, tmp_path: Path, settings: Any) -> Iterator[World]:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, data_dir=tmp_path)
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    with transaction.atomic():
        built = build_world()
    yield built
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_made_up_input_meets_no_server_error_and_no_open_door(world: World) -> None:
    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", WSGIHandler())
    failures: list[str] = []
    answered: dict[int, set[str]] = {}  # operations by the class of an answer: 2, 4
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        name = f"{operation.method.upper()} {operation.path.removeprefix('/api/v1')}"
        bearer = world.tokens["node" if ROUTES[name] == NODE else "alice"]
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                _asker(name, operation, mode, bearer, world, failures, answered)()
            except Unsatisfiable:
                assert mode == GenerationMode.NEGATIVE, f"{name} takes nothing"  # nothing in it can be broken
            tried += 1
    assert tried > 100
    print({kind: len(names) for kind, names in answered.items()})
    assert len(answered[2]) > tried / 8, "too few handlers were reached"
    assert failures == [], "\n".join(failures)


def _asker(
    name: str,
    operation: Any,
    mode: GenerationMode,
    bearer: str,
    world: World,
    failures: list[str],
    answered: dict[int, set[str]],
) -> Callable[[], None]:
    known = {key: value for key, value in world.ids.items() if f"{{{key}}}" in operation.path}
    count = 0
    raised: list[str] = []

    def note_exception(**_: Any) -> None:
        error = sys.exc_info()[1]
        raised.append(f"{type(error).__name__} {str(error)[:120]}")

    got_request_exception.connect(note_exception, weak=False, dispatch_uid="fuzz")

    @seed(20260101)
    @QUIETLY
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        nonlocal count
        count += 1
        if known and count % 2:
            case.path_parameters = {**(case.path_parameters or {}), **known}
        if isinstance(case.query, dict) and "wait" in case.query:
            case.query["wait"] = "0"
        reply = case.call(headers={"Authorization": f"Bearer {bearer}"})
        answered.setdefault(reply.status_code // 100, set()).add(name)
        if reply.status_code >= 500:
            reason = raised.pop() if raised else "no exception"
            if not any(failure.startswith(f"{name}: {reason}") for failure in failures):
                failures.append(f"{name}: {reason} to {case.as_curl_command()[:800]}")
        if ROUTES[name] != "open" and count <= 2:
            stranger = case.call(headers={"Authorization": "Bearer ool_nobody"})
            # Some made-up addresses are none of ours: a word for a number, a NUL.
            if stranger.status_code not in (400, 401, 404):
                failures.append(f"{name}: {stranger.status_code} for a stranger")

    return ask
