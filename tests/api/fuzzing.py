"""Made-up input for every operation of the OpenAPI document, drawn from the document itself by schemathesis.

The same in every run. Names of objects are real ones half of the time, so that handlers are reached.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import got_request_exception
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.internal.conjecture import providers
from schemathesis import Case, GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.transport import Response
from schemathesis.specs.openapi import checks

from tests.unit.control_plane.access.objects import World
from tests.unit.control_plane.access.routes import NODE, ROUTES

IN_THE_MESSAGE = {ParameterLocation.QUERY, ParameterLocation.BODY}
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
ALWAYS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]


@dataclass
class Findings:
    failures: list[str] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)  # 422 to what fits the document, by operation
    accepted: Counter[str] = field(default_factory=Counter)  # 2xx to what breaks it
    answered: dict[int, set[str]] = field(default_factory=dict)  # operations by the class of an answer: 2, 4
    linked: set[str] = field(default_factory=set)  # operations that a link leads to or from
    operations: int = 0
    requests: int = 0
    notes: dict[str, str] = field(default_factory=dict)  # operation → the first unexpected answer


def ask_every_operation(world: World, *, examples: int) -> Findings:
    """`examples` requests to each operation in each of two modes: as the document says, and broken in one place."""
    found = Findings()
    with input_from_the_document_alone() as configuration:
        schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", WSGIHandler(), config=configuration)
        for operation in schema.get_all_operations():
            _ask(operation.ok(), world, examples, found)
    return found


@contextmanager
def input_from_the_document_alone() -> Iterator[SchemathesisConfig]:
    """No values from literals of the code, which Schemathesis and Hypothesis else take: each change changes them."""
    with patch.object(providers, "_get_local_constants", providers.Constants):
        yield SchemathesisConfig.from_dict({"analysis": {"constants": {"enabled": False}}})


def _ask(operation: Any, world: World, examples: int, found: Findings) -> None:
    name = name_of(operation)
    found.operations += 1
    for mode in MODES:
        try:
            _requests(name, operation, mode, world, examples, found)()
        except Unsatisfiable:
            assert mode == GenerationMode.NEGATIVE, f"{name} takes nothing"  # nothing in it can be broken


def name_of(operation: Any) -> str:
    """`GET /runs/{run_id}`, as the table of routes has it."""
    return f"{operation.method.upper()} {operation.path.removeprefix('/api/v1')}"


def bearer_of(world: World, name: str) -> str:
    return world.tokens["node" if ROUTES[name] == NODE else "alice"]


def _requests(
    name: str, operation: Any, mode: GenerationMode, world: World, examples: int, found: Findings
) -> Any:
    bearer = bearer_of(world, name)
    known = {key: value for key, value in world.ids.items() if f"{{{key}}}" in operation.path}
    count = 0
    raised: list[str] = []

    def note_exception(**_: Any) -> None:
        error = sys.exc_info()[1]
        raised.append(f"{type(error).__name__} {str(error)[:120]}")

    got_request_exception.connect(note_exception, weak=False, dispatch_uid="fuzz")

    @seed(20260101)
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, print_blob=False,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        nonlocal count
        count += 1
        found.requests += 1
        broken = {place for place, part in case.meta.components.items() if part.mode.is_negative}
        if known and count % 2 and ParameterLocation.PATH not in broken:
            case.path_parameters = {**(case.path_parameters or {}), **known}
        if isinstance(case.query, dict) and "wait" in case.query and ParameterLocation.QUERY not in broken:
            case.query["wait"] = "0"
        # Not compressed: the client of these tests does not read gzip.
        reply = _rolled_back(case, {"Authorization": f"Bearer {bearer}", "Accept-Encoding": "identity"})
        found.answered.setdefault(reply.status_code // 100, set()).add(name)
        if reply.status_code >= 500:
            reason = raised.pop() if raised else "no exception"
            note(found.failures, f"{name}: {reason}", case)
        if mode == GenerationMode.POSITIVE and reply.status_code in (400, 422):
            found.rejected[name] += 1
            found.notes.setdefault(
                f"rejected {name}", f"{reply.content[:300]!r} {case.as_curl_command()[:500]}"
            )
        # A made-up cookie is not looked at when a token is sent, and unknown headers are nobody's.
        if broken & IN_THE_MESSAGE and reply.status_code < 300 and not _breaks_nothing(case):
            found.accepted[name] += 1
            found.notes.setdefault(
                f"accepted {name}", f"{reply.content[:200]!r} {case.as_curl_command()[:500]}"
            )
        try:
            case.validate_response(reply, checks=ALWAYS)
        except FailureGroup as group:
            for error in group.exceptions:
                note(found.failures, f"{name}: {type(error).__name__} {str(error)[:400]}", case)
        if ROUTES[name] != "open" and count <= 1:
            stranger = _rolled_back(case, {"Authorization": "Bearer ool_nobody"})
            # Some made-up addresses are none of ours: a word for a number, a NUL.
            if stranger.status_code not in (400, 401, 404):
                note(found.failures, f"{name}: {stranger.status_code} for a stranger", case)

    return ask


def _rolled_back(case: Case, headers: dict[str, str]) -> Response:
    """The answer in the world as it was built: no request finds what another has done to it."""
    with transaction.atomic():
        reply = case.call(headers=headers)
        transaction.set_rollback(True)
    return reply


def _breaks_nothing(case: Case) -> bool:
    """An absent or empty body where none is needed, and parameters that became the empty query."""
    has_body = case.operation.body and case.body not in (None, {}, "")
    return not has_body and not case.query


def note(failures: list[str], failure: str, case: Case) -> None:
    if not any(one.startswith(failure[:120]) for one in failures):
        failures.append(f"{failure} to {case.as_curl_command()[:800]}")
