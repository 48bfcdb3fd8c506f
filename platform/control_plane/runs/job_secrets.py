"""Secrets of jobs: which job gets which secret, and the values for the node that is about to start a job."""

from __future__ import annotations

from datetime import datetime

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.secrets import secret_services
from control_plane.core.api.errors import FieldError, conflict, or_not_found, stale_epoch
from control_plane.fleet.access import team_may_use
from control_plane.fleet.models import Node
from control_plane.runs.fencing import check_epoch
from control_plane.runs.models import Run, jobs_on
from oolong.contracts.lifecycle import JobKind, JobState
from oolong.contracts.run_spec import RunSpec, SecretSection
from oolong.contracts.run_spec.remote_rewards import remote_rewards, secret_variable


def secret_variables(run: Run, kind: JobKind) -> dict[str, str]:
    """Environment variable → secret name, for jobs of this kind."""
    named = [SecretSection.model_validate(entry) for entry in run.spec.get("secrets", [])]
    variables = {secret.variable_name: secret.name for secret in named if kind in secret.jobs}
    if kind == JobKind.REWARD:
        secrets = [reward.options.secret for reward in remote_rewards(run.spec)]
        variables |= {secret_variable(name): name for name in secrets if name is not None}
    return variables


def secret_errors(caller: Caller, spec: RunSpec) -> list[FieldError]:
    """Errors for secrets that do not exist, or that no admin allowed for these jobs: otherwise anyone who can start
    runs could read every secret of the project with code of their own."""
    allowed = secret_services.for_jobs(caller.project.pk, [secret.name for secret in spec.secrets])
    errors = []
    for index, secret in enumerate(spec.secrets):
        if unread := [job for job in secret.jobs if job not in jobs_with_user_code(spec)]:
            errors.append(
                FieldError(f"/secrets/{index}/jobs", "no_user_code", _no_user_code_message(secret, unread))
            )
        elif secret.name not in allowed:
            message = unknown_secret_message(caller, secret.name, secret.jobs)
            errors.append(FieldError(f"/secrets/{index}/name", "unknown_secret", message))
        elif denied := [job for job in secret.jobs if job not in allowed[secret.name]]:
            message = not_for_job_message(secret.name, denied, allowed[secret.name])
            errors.append(FieldError(f"/secrets/{index}/jobs", "secret_not_for_job", message))
    return errors


def unknown_secret_message(caller: Caller, name: str, jobs: list[JobKind]) -> str:
    return f"project {caller.project.name!r} has no secret {name}; ask an admin to set it: {_set_command(name, jobs)}"


def not_for_job_message(name: str, denied: list[JobKind], allowed: list[str]) -> str:
    return (
        f"the secret {name} is not allowed for the {' and '.join(denied)} job, only for "
        f"{', '.join(allowed) or 'no job'}; ask an admin to allow it: {_set_command(name, [*allowed, *denied])}"
    )


def jobs_with_user_code(spec: RunSpec) -> frozenset[JobKind]:
    """The kinds of jobs in which user code can read environment variables.

    Uploaded rewards, workflows, tools and agents run in sandboxes with an empty environment. A loss function runs in
    the trainer's process.
    """
    return frozenset({JobKind.TRAINER} if spec.algorithm.loss_function is not None else ())


def _no_user_code_message(secret: SecretSection, jobs: list[JobKind]) -> str:
    if jobs == [JobKind.TRAINER]:
        return (
            f"no code in the trainer of this run reads {secret.name}: only an uploaded loss "
            "(algorithm.loss_function) can; name one, or leave the secret out"
        )
    named = " and ".join(job for job in jobs if job != JobKind.TRAINER)
    return (
        f"no user code can read {secret.name} in the {named} job: uploaded rewards, workflows and agents run in "
        "sandboxes without environment variables. Only the trainer of a run with an uploaded loss "
        "(algorithm.loss_function) can have secrets: jobs: [trainer]. The rewards http and judge name theirs in "
        "their options"
    )


def reveal(node: Node, job_id: str, *, epoch: int, incarnation: int, now: datetime) -> dict[str, str]:
    """Environment variable → current value, for the node that is about to start this incarnation of its job.

    404 for a job of another node, 409 stale_epoch for a job that must not start, 409 secret_missing when a secret was
    deleted or is no longer allowed for such jobs.
    """
    job = or_not_found(
        jobs_on(node).select_related("attempt__run__project").filter(pk=job_id).first(),
        "job",
        job_id,
    )
    run, kind = job.attempt.run, JobKind(job.kind)
    check_epoch(job.attempt, run, epoch)
    if not team_may_use(node.pool_id, run.project.team_id):
        raise stale_epoch(f"{job.name} must not start: its team may no longer use pool {node.pool_id!r}")
    if job.state == JobState.EXITED or job.stop_asked_at is not None:
        raise stale_epoch(f"{job.name} of {run.name!r} must not start: it is stopping, or has ended")
    variables = secret_variables(run, kind)
    names = sorted(set(variables.values()))
    allowed = secret_services.for_jobs(run.project_id, names)
    hosts = secret_services.for_hosts(run.project_id, names)
    for variable, name in variables.items():
        if kind not in allowed.get(name, []):
            state = "is no longer allowed for such jobs" if name in allowed else "was deleted"
            raise conflict(
                "secret_missing",
                f"the secret {name}, which {job.name} needs as {variable}, {state}; ask an admin to set it "
                f"({_set_command(name, [kind])}), then retry the run from its last checkpoint",
            )
    for reward in remote_rewards(run.spec) if kind == JobKind.REWARD else []:
        secret = reward.options.secret
        if secret is not None and (
            denied := secret_services.host_error(secret, reward.options.url, hosts[secret])
        ):
            raise conflict("secret_missing", f"{denied}; then retry the run from its last checkpoint")
    what = (
        f"{job.name} of run {run.name!r} ({run.pk}), attempt {job.attempt.number}, incarnation {incarnation}"
    )
    values = secret_services.reveal(run.project_id, names, for_what=what, now=now)
    return {variable: values[name] for variable, name in variables.items()}


def _set_command(name: str, jobs: list[JobKind] | list[str]) -> str:
    return f"oolong secret set {name} {' '.join(f'--job {job}' for job in jobs)}"
