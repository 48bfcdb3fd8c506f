"""Requests that follow the document's links: what one answer names, the next request is sent to.

A walk begins with operations that need no name, in the world as it was built. What a request changes stays while the
links of its answer are followed, and is rolled back then, so that nothing that one chain ends is missing in another.
After a change, the operations on the same object are tried again: a run resumes that the last request paused.
Bodies that the document has an example of are that example, with the names that a link gives put in.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from random import Random
from typing import Any

import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.core.transforms import UNRESOLVABLE
from schemathesis.core.transport import Response
from schemathesis.generation.stateful.state_machine import StepOutput
from schemathesis.specs.openapi.stateful import OpenApiLink, collect_transitions

from control_plane.accounts.models import User
from control_plane.accounts.selectors import caller_in
from control_plane.assets.models import DatasetValidation
from control_plane.core.infra import clock
from control_plane.runs import drafts
from control_plane.runs.models import Attempt, Run
from control_plane.telemetry.models import StateSnapshot
from control_plane.webhooks.models import Delivery, DeliveryState
from tests.api.fuzzing import ALWAYS, Findings, bearer_of, input_from_the_document_alone, name_of, note
from tests.unit.control_plane.access.objects import World

TRIES = 20  # of an operation that has not answered well in a round, each from another answer
PART = b"checkpoint 2"  # what the uploads of the world expect


def follow_links(world: World, *, rounds: int, unreachable: set[str]) -> Findings:
    """Walks with the seeds 0, 1, …, until every linked operation but the unreachable has answered well."""
    with input_from_the_document_alone() as configuration:
        schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", WSGIHandler(), config=configuration)
        schema.config.generation.update(modes=[GenerationMode.POSITIVE])
        walker = _Walker(world, [one.ok() for one in schema.get_all_operations()])
        for number in range(rounds):
            walker.walk(number)
            if walker.found.linked - walker.found.answered[2] <= unreachable:
                break
    return walker.found


class _Walker:
    def __init__(self, world: World, operations: list[Any]) -> None:
        self._world = world
        transitions = collect_transitions(operations).operations
        self._links = {label: of.outgoing for label, of in transitions.items()}
        self._operations = {one.label: one for one in operations if one.label in transitions}
        self.found = Findings(linked={name_of(one) for one in self._operations.values()})
        self._reached: set[str] = set()  # labels of operations that have answered well
        self._wanted: set[str] = set()  # labels on the way to one that has not, as the round begins
        self._expanded: set[str] = set()  # labels that have answered well in this round
        self._tries: Counter[str] = Counter()  # in this round
        self._chain: list[StepOutput] = []  # the answers that lead to the next request
        self._prepared = _prepared(world)
        self._seed = 0

    def walk(self, number: int) -> None:
        self._seed, self._random = number, Random(number)
        self._wanted = self._on_the_way()
        self._expanded.clear()
        self._tries.clear()
        roots = [one for one in self._operations.values() if "{" not in one.path]
        self._random.shuffle(roots)
        for operation in roots:
            self._try(operation)

    def _on_the_way(self) -> set[str]:
        wanted = self._operations.keys() - self._reached
        while (
            more := {
                label
                for label, links in self._links.items()
                if any(link.target.label in wanted for link in links)
            }
            - wanted
        ):
            wanted |= more
        return wanted

    def _try(self, operation: Any, link: OpenApiLink | None = None, output: StepOutput | None = None) -> None:
        label = operation.label
        if label not in self._wanted or label in self._expanded or self._tries[label] >= TRIES:
            return
        given_names = {} if link is None or output is None else self._names(link, output)
        if given_names is None:
            return
        for case in self._cases(operation, given_names):
            self._tries[label] += 1
            with transaction.atomic():
                response = self._request(case)
                if response.status_code < 300 and label not in self._expanded:
                    self._reached.add(label)
                    self._expanded.add(label)
                    self._follow(StepOutput(response, case))
                transaction.set_rollback(True)

    def _follow(self, output: StepOutput) -> None:
        status = str(output.response.status_code)
        operation = output.case.operation
        links = [(one, output) for one in self._links[operation.label] if one.status_code == status]
        self._random.shuffle(links)
        if operation.method != "get" and "}" in operation.path:
            thing = operation.path.partition("}")[0]
            links += [
                (link, before)
                for before in reversed(self._chain)
                for link in self._links[before.case.operation.label]
                if link.target.path.startswith(thing) and link.target.label not in self._reached
            ]
        self._chain.append(output)
        for link, answer in sorted(links, key=lambda one: one[0].target.label in self._reached):
            self._try(link.target, link, answer)
        self._chain.pop()

    def _cases(self, operation: Any, names: dict[str, Any]) -> list[Case]:
        """The plainest request that the document allows; from the second round on also one by chance."""
        body = names.pop("body", {})
        prepared = self._prepared.get(name_of(operation), {})
        known = {key: value for key, value in self._world.ids.items() if f"{{{key}}}" in operation.path}
        names["path_parameters"] = {
            **known, **names.get("path_parameters", {}), **prepared.get("path_parameters", {})
        }  # fmt: skip
        query = {**names.pop("query", {}), **prepared.get("query", {})}
        required = {one.name for one in operation.query if one.is_required}
        cases: list[Case] = []

        @seed(self._seed)
        @settings(
            max_examples=1 + (self._seed > 0), deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE, **names))
        def collect(case: Case) -> None:
            example, given_body = _example(case), prepared.get("body", {})
            if isinstance(given_body, bytes):
                case.body = given_body
            elif isinstance(case.body, dict):
                case.body = {**(example if isinstance(example, dict) else case.body), **body, **given_body}
            drawn = case.query if isinstance(case.query, dict) else {}
            kept = {name: value for name, value in drawn.items() if cases or name in required}
            kept.pop("wait", None)  # a long poll reads in another thread, which does not see the chain
            case.query = {**kept, **query}
            case.headers.update(prepared.get("headers", {}))
            cases.append(case)

        collect()
        return cases

    def _request(self, case: Case) -> Response:
        found, name = self.found, name_of(case.operation)
        bearer = bearer_of(self._world, name)
        response = case.call(headers={"Authorization": f"Bearer {bearer}", "Accept-Encoding": "identity"})
        found.requests += 1
        found.answered.setdefault(response.status_code // 100, set()).add(name)
        if response.status_code >= 300:
            found.notes[name] = (
                f"{response.status_code} {response.content[:300].decode(errors='replace')} to {case.as_curl_command()}"
            )
        if response.status_code >= 500:
            note(found.failures, f"{name}: {response.status_code}", case)
        try:
            case.validate_response(response, checks=ALWAYS)
        except FailureGroup as group:
            for error in group.exceptions:
                note(found.failures, f"{name}: {type(error).__name__} {str(error)[:400]}", case)
        return response

    def _names(self, link: OpenApiLink, output: StepOutput) -> dict[str, Any] | None:
        """What the link takes from the answer, by the part of the request that it goes into; None where it is empty."""
        found: dict[str, Any] = {}
        transition = link.extract(output)
        for place, names in transition.parameters.items():
            values = {name: one.value.ok() for name, one in names.items() if isinstance(one.value, Ok)}
            if len(values) < len(names) or any(value in (None, UNRESOLVABLE) for value in values.values()):
                return None
            text = output.response.content.decode()
            found[place] = {name: self._chosen(name, value, text) for name, value in values.items()}
        if transition.request_body is not None and isinstance(transition.request_body.value, Ok):
            body = transition.request_body.value.ok()
            if isinstance(body, dict):
                found["body"] = {name: value for name, value in body.items() if value is not UNRESOLVABLE}
        return found

    def _chosen(self, name: str, value: Any, text: str) -> Any:
        """The world's own object in each second round where the answer has it too, else what the link names."""
        own = self._world.ids.get(name)
        return own if own is not None and self._seed % 2 == 0 and f'"{own}"' in text else value


def furnish(world: World) -> None:
    """Objects in states that no request brings about: nodes and workers do."""
    User.objects.create(username="outsider")
    run = Run.objects.get(pk=world.ids["run_id"])
    attempt = Attempt.objects.get(pk=world.ids["attempt_id"])
    StateSnapshot.objects.create(run=run, attempt=attempt, name="ledger", at=clock.now(), value={})
    Delivery.objects.update(state=DeliveryState.FAILED, ended_at=clock.now())
    world.ids["valid_id"] = DatasetValidation.objects.filter(state="VALID").values_list("pk", flat=True)[0]
    spec = {"kind": "rl", "name": "draft", "model": {"base_model": "tiny"}, "dataset": {"version": "sums@1"}}
    caller = caller_in(world.users["alice"], run.project)
    assert caller is not None
    drafts.create_draft(caller, spec, now=clock.now())  # the newest, so the first of the page


def _prepared(world: World) -> dict[str, dict[str, Any]]:
    """What the document cannot say: words of the world, and digests of bytes."""
    digest = hashlib.sha256(PART).hexdigest()
    part = {"path_parameters": {"number": 0}, "headers": {"X-Part-SHA256": digest}, "body": PART}
    checkpoint = {
        "step": 2, "manifest_sha256": hashlib.sha256(PART + b"manifest").hexdigest(), "tar_sha256": digest,
        "bytes": len(PART),
    }  # fmt: skip
    return {
        "GET /pool": {"query": {"pool": "own"}},
        "GET /runs/{run_id}/logs/download": {"query": {"job": "trainer"}},
        "POST /agent/attempts/{attempt_id}/checkpoints": {"body": checkpoint},
        "POST /agent/imports/{import_id}/uploads": {"body": {"tar_sha256": digest, "bytes": len(PART)}},
        "POST /datasets/{dataset_id}/versions": {"body": {"validation_id": world.ids["valid_id"]}},
        "POST /members": {"body": {"username": "outsider"}},
        "POST /pools/{pool_name}/teams": {"body": {"team": world.ids["team_id"]}},
        "POST /upload-sessions": {"body": {"bytes": len(PART)}},
        "POST /webhooks": {"body": {"url": "https://192.0.9.1/red"}},
        "PUT /agent/imports/{import_id}/parts/{number}": part,
        "PUT /agent/uploads/{upload_id}/parts/{number}": part,
        "PUT /checkpoint-aliases/{alias}": {"body": {"force": True}},
        "PUT /upload-sessions/{session_id}/parts/{number}": part,
    }  # fmt: skip


def _example(case: Case) -> Any:
    body = case.operation.definition.raw.get("requestBody", {})
    return body.get("content", {}).get("application/json", {}).get("example")
