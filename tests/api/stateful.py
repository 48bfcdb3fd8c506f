"""Requests that follow the document's links: what one answer names, the next request is sent to.

A scenario begins with operations that need no name, in the world as it was built, and what it changes is rolled back.
Bodies that the document has an example of are that example, with the names that a link gives put in.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.db import transaction
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.transport import Response
from schemathesis.engine.supervisor import SchedulingDirective, Verdict
from schemathesis.generation.stateful.state_machine import StepInput, StepOutput

from tests.api.fuzzing import ALWAYS, Findings, bearer_of, name_of, note
from tests.unit.control_plane.access.objects import World

TRIES = 12  # of an operation that has not answered well yet; then others are worth more


def follow_links(world: World, *, rounds: int, scenarios: int, steps: int) -> Findings:
    """Rounds of a few scenarios each; where they have yet to go is settled before each round."""
    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", WSGIHandler())
    schema.config.generation.update(modes=[GenerationMode.POSITIVE])
    schema.config.phases.stateful.inference.algorithms = []  # the document's own links only
    found = Findings()
    machine: Any = schema.as_state_machine()
    operations = machine._transitions.operations
    guide = Guide({label: {link.target.label for link in of.outgoing} for label, of in operations.items()})

    class Scenario(machine):  # type: ignore[misc]
        def setup(self) -> None:
            self.control.supervisor = guide
            self.rolled_back = transaction.atomic()
            self.rolled_back.__enter__()

        def teardown(self) -> None:
            transaction.set_rollback(True)
            self.rolled_back.__exit__(None, None, None)

        def step(self, input: StepInput) -> StepOutput:
            case = input.case
            linked = {name for place, name in input.applied_parameters if place == ParameterLocation.BODY}
            example = _example(case)
            if isinstance(case.body, dict) and isinstance(example, dict):
                case.body = {**example, **{key: value for key, value in case.body.items() if key in linked}}
            if isinstance(
                case.query, dict
            ):  # a long poll reads in another thread, which does not see the scenario
                case.query.pop("wait", None)
            output: StepOutput = super().step(input)
            return output

        def get_call_kwargs(self, case: Case) -> dict[str, Any]:
            bearer = bearer_of(world, name_of(case.operation))
            return {"headers": {"Authorization": f"Bearer {bearer}", "Accept-Encoding": "identity"}}

        def validate_response(self, response: Response, case: Case, *_: Any, **__: Any) -> None:
            name = name_of(case.operation)
            guide.note(case.operation.label, well=response.status_code < 300)
            found.requests += 1
            found.answered.setdefault(response.status_code // 100, set()).add(name)
            found.notes[name] = f"{response.status_code} {response.content[:300]!r}"
            if response.status_code >= 500:
                note(found.failures, f"{name}: {response.status_code}", case)
            try:
                case.validate_response(response, checks=ALWAYS)
            except FailureGroup as group:
                for error in group.exceptions:
                    note(found.failures, f"{name}: {type(error).__name__} {str(error)[:400]}", case)

    for _ in range(rounds):
        if not guide.begin_round():
            break
        Scenario.run(
            settings=settings(
                max_examples=scenarios,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
        )
    found.linked = {name_of(one.ok()) for one in schema.get_all_operations() if one.ok().label in operations}
    return found


class Guide:
    """Keeps the walk on the way to operations that have not answered well yet, and off those that lead to none."""

    def __init__(self, links: dict[str, set[str]]) -> None:
        self._links = links
        self._well: set[str] = set()
        self._tries: Counter[str] = Counter()
        self._wanted: set[str] = set()

    def begin_round(self) -> bool:
        """Whether anything is left. Within a round nothing moves, as Hypothesis asks of what it draws from."""
        self._wanted = self._on_the_way()
        return bool(self._wanted)

    def note(self, label: str, *, well: bool) -> None:
        self._tries[label] += 1
        if well:
            self._well.add(label)

    def verdict(self, label: str) -> Verdict:
        wanted = label in self._wanted
        return Verdict(SchedulingDirective.RUN if wanted else SchedulingDirective.SKIP)

    def _on_the_way(self) -> set[str]:
        wanted = {label for label in self._links if label not in self._well and self._tries[label] < TRIES}
        while more := {label for label, targets in self._links.items() if targets & wanted} - wanted:
            wanted |= more
        return wanted


def _example(case: Case) -> Any:
    body = case.operation.definition.raw.get("requestBody", {})
    return body.get("content", {}).get("application/json", {}).get("example")
