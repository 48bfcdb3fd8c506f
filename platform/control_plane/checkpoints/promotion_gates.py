"""Promotion gates of aliases: assertions on the metrics of an eval run of the checkpoint.

The gate's spec pins every name. Only the newest eval run of the checkpoint with that spec counts, even if an earlier
one passed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from control_plane.accounts.identity.caller import Caller
from control_plane.checkpoints import registry
from control_plane.checkpoints.models import AliasGate, Checkpoint
from control_plane.core.api.errors import FieldError, conflict, unprocessable
from control_plane.runs.evaluation import evaluation_metrics, same_evaluation, unknown_metric_message
from control_plane.runs.models import Run
from control_plane.runs.spec_resolution import resolve_spec
from control_plane.runs.submission import create_run
from oolong.contracts.assertions import Assertion, parse
from oolong.contracts.lifecycle import RunStatus

PASSED, FAILED, MISSING, PENDING = STATUSES = ("passed", "failed", "missing", "pending")
SECTIONS = ("dataset", "reward", "workflow", "evaluation", "rollout", "budget", "placement", "seed")


@dataclass(frozen=True)
class Check:
    assertion: str
    value: float | None
    holds: bool


@dataclass(frozen=True)
class GateResult:
    alias: str
    checkpoint: str
    status: str
    why: str
    command: str = ""  # what to run next
    run: str | None = None
    checks: tuple[Check, ...] = ()


def set_gate(
    caller: Caller, alias: str, *, spec: dict[str, Any], assertions: list[str], now: datetime
) -> AliasGate:
    """Pin the names in the spec and save the gate. 422 with pointers into the body."""
    errors = [*_assertion_errors(assertions), *_section_errors(spec)]
    document = {**spec, "kind": "eval", "name": f"gate of {alias}", "model": {"checkpoint": "candidate"}}
    resolved = resolve_spec(caller, document, with_model=False)
    errors += [FieldError(f"/spec{error.pointer}", error.code, error.message) for error in resolved.errors]
    if errors:
        raise unprocessable("invalid", f"{errors[0].pointer}: {errors[0].message}", errors)
    assert resolved.document is not None
    pinned = {name: resolved.document[name] for name in SECTIONS}
    normalized = [str(parse(text)) for text in assertions]
    return registry.set_gate(caller, alias, spec=pinned, assertions=normalized, now=now)


def run_gate(caller: Caller, gate: AliasGate, checkpoint: Checkpoint, *, now: datetime) -> Run:
    """Submit the eval run of the gate for a checkpoint."""
    return create_run(caller, {**gate.spec, **_identity_fields(gate, checkpoint)}, now=now)


def evaluate(gate: AliasGate, checkpoint: Checkpoint) -> GateResult:
    command = f"oolong checkpoint gate run {gate.alias} {checkpoint.pk}"
    run = _newest_run(gate, checkpoint)
    if run is None:
        why = f"no eval run has scored {checkpoint.pk} with the spec of the gate of {gate.alias!r}"
        return GateResult(gate.alias, checkpoint.pk, MISSING, why, command)
    if not run.has_ended:
        why = f"its eval run {run.pk} is still {run.status}"
        return GateResult(gate.alias, checkpoint.pk, PENDING, why, f"oolong run wait {run.pk}", run.pk)
    if run.status != RunStatus.SUCCEEDED:
        why = f"its eval run {run.pk} is {run.status} ({run.reason or 'no reason'}), so nothing was measured"
        return GateResult(gate.alias, checkpoint.pk, MISSING, why, command, run.pk)
    values = evaluation_metrics(run.summary.get("evaluation", {}))
    checks = tuple(_check(parse(text), values) for text in gate.assertions)
    failed = [check for check in checks if not check.holds]
    if not failed:
        why = f"eval run {run.pk}: {'; '.join(map(_format_check, checks))}"
        return GateResult(gate.alias, checkpoint.pk, PASSED, why, "", run.pk, checks)
    why = f"eval run {run.pk}: {'; '.join(map(_format_check, failed))}"
    return GateResult(gate.alias, checkpoint.pk, FAILED, why, command, run.pk, checks)


def enforce(gate: AliasGate, checkpoint: Checkpoint) -> dict[str, Any]:
    """The evidence of a passed gate, recorded with the promotion. 409 gate_missing or gate_failed with what to do."""
    result = evaluate(gate, checkpoint)
    if result.status == PASSED:
        run = Run.objects.get(pk=result.run)
        return {
            "passed": True, "run": run.pk, "dataset": gate.spec["dataset"],
            "checks": [asdict(check) for check in result.checks],
        }  # fmt: skip
    code = "gate_failed" if result.status == FAILED else "gate_missing"
    raise conflict(
        code, f"{gate.alias!r} is protected by a gate: {result.why}; run: {result.command}",
        result=asdict(result), command=result.command,
    )  # fmt: skip


def _newest_run(gate: AliasGate, checkpoint: Checkpoint) -> Run | None:
    runs = Run.objects.filter(project=gate.project_id, kind="eval", initial_checkpoint=checkpoint)
    for run in runs.order_by("-created_at", "-pk"):
        if same_evaluation(run.spec, {**gate.spec, **_identity_fields(gate, checkpoint)}):
            return run
    return None


def _identity_fields(gate: AliasGate, checkpoint: Checkpoint) -> dict[str, Any]:
    return {"kind": "eval", "name": f"gate of {gate.alias}", "model": {"checkpoint": checkpoint.pk}}


def _check(assertion: Assertion, values: dict[str, float]) -> Check:
    value = values.get(assertion.name)
    return Check(str(assertion), value, assertion.holds(value))


def _format_check(check: Check) -> str:
    value = "not measured" if check.value is None else f"{check.value:.4g}"
    return f"{check.assertion} {'holds' if check.holds else 'does not hold'} ({value})"


def _assertion_errors(assertions: list[str]) -> list[FieldError]:
    errors = []
    for index, text in enumerate(assertions):
        try:
            name = parse(text).name
        except ValueError as error:
            errors.append(FieldError(f"/assertions/{index}", "not_understood", str(error)))
            continue
        if message := unknown_metric_message(name):
            errors.append(FieldError(f"/assertions/{index}", "unknown_metric", message))
    return errors


def _section_errors(spec: dict[str, Any]) -> list[FieldError]:
    return [
        FieldError(
            f"/spec/{name}",
            "not_of_a_gate",
            f"{name} is not a section of a gate's spec; its sections are {', '.join(SECTIONS)}",
        )
        for name in spec
        if name not in SECTIONS
    ]
