"""The secrets of a run's jobs: which each is to have, and their values for the node that is about to start it."""

from __future__ import annotations

from datetime import datetime

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.secrets import secret_services
from control_plane.core.api.errors import FieldError, conflict, or_not_found, stale_epoch
from control_plane.fleet.access import team_may_use
from control_plane.fleet.models import Node
from control_plane.runs.fencing import refuse_stale
from control_plane.runs.models import Job, Run
from oolong.contracts.lifecycle import JobKind, JobState
from oolong.contracts.run_spec import RunSpec, SecretSection


def variables_of(run: Run, kind: JobKind) -> dict[str, str]:
    """The variables that jobs of this kind have, each with the name of its secret."""
    named = [SecretSection.model_validate(entry) for entry in run.spec.get("secrets", [])]
    return {secret.variable_name: secret.name for secret in named if kind in secret.jobs}


def refusals(caller: Caller, spec: RunSpec) -> list[FieldError]:
    """What the project does not have, or an admin did not allow for these jobs. Whoever may start runs could else have
    any secret of the project put where code of his own reads it."""
    allowed = secret_services.for_jobs(caller.project.pk, [secret.name for secret in spec.secrets])
    found = []
    for index, secret in enumerate(spec.secrets):
        if unread := [job for job in secret.jobs if job not in readers(spec)]:
            found.append(FieldError(f"/secrets/{index}/jobs", "no_user_code", _unread(secret, unread)))
        elif secret.name not in allowed:
            message = (
                f"project {caller.project.name!r} has no secret {secret.name}; an admin sets it: "
                f"{_command(secret.name, secret.jobs)}"
            )
            found.append(FieldError(f"/secrets/{index}/name", "unknown_secret", message))
        elif refused := [job for job in secret.jobs if job not in allowed[secret.name]]:
            message = (
                f"the secret {secret.name} is not for the {' and '.join(refused)} job but for "
                f"{', '.join(allowed[secret.name]) or 'no job'}; an admin can change that: "
                f"{_command(secret.name, [*allowed[secret.name], *refused])}"
            )
            found.append(FieldError(f"/secrets/{index}/jobs", "secret_not_for_job", message))
    return found


def readers(spec: RunSpec) -> frozenset[JobKind]:
    """The jobs in which code of the run's author can read a variable.

    Uploaded rewards, workflows, tools and agents run in sandboxes, whose environment is empty. A loss runs in the
    trainer's own process.
    """
    return frozenset({JobKind.TRAINER} if spec.algorithm.loss_function is not None else ())


def _unread(secret: SecretSection, jobs: list[JobKind]) -> str:
    if jobs == [JobKind.TRAINER]:
        return (
            f"the trainer of this run has no code that reads {secret.name}: only a loss of your own "
            "(algorithm.loss_function) does; name one, or leave the secret out"
        )
    named = " and ".join(job for job in jobs if job != JobKind.TRAINER)
    return (
        f"no code of yours can read {secret.name} in the {named} job: uploaded rewards, workflows and agents run in "
        "sandboxes without variables. Only the trainer of a run with a loss of your own (algorithm.loss_function) "
        "may have secrets: jobs: [trainer]"
    )


def hand_out(node: Node, job_id: str, *, epoch: int, incarnation: int, now: datetime) -> dict[str, str]:
    """Variable -> value, for the node that holds the job's attempt and is about to start this incarnation.

    404 for a job of another node, 409 fenced for one that it is not to start, 409 secret_missing when a secret was
    deleted, or is not for such jobs any more. A value that was set anew since is the one that is given.
    """
    job = or_not_found(
        Job.objects.select_related("attempt__run__project").filter(pk=job_id, attempt__node=node).first(),
        "job",
        job_id,
    )
    run, kind = job.attempt.run, JobKind(job.kind)
    refuse_stale(job.attempt, run, epoch)
    if not team_may_use(node.pool_id, run.project.team_id):
        raise stale_epoch(
            f"{job.name} is not to be started: its team may not use pool {node.pool_id!r} any more"
        )
    if job.state == JobState.EXITED or job.stop_asked_at is not None:
        raise stale_epoch(
            f"{job.name} of {run.name!r} is not to be started: it was asked to stop, or has ended"
        )
    variables = variables_of(run, kind)
    names = sorted(set(variables.values()))
    allowed = secret_services.for_jobs(run.project_id, names)
    for variable, name in variables.items():
        if kind not in allowed.get(name, []):
            is_so = "is not for such jobs any more" if name in allowed else "was deleted"
            raise conflict(
                "secret_missing",
                f"the secret {name}, which {job.name} is to have as {variable}, {is_so}; an admin sets it again "
                f"({_command(name, [kind])}), then retry goes on from the last checkpoint",
            )
    what = (
        f"{job.name} of run {run.name!r} ({run.pk}), attempt {job.attempt.number}, incarnation {incarnation}"
    )
    values = secret_services.reveal(run.project_id, names, for_what=what, now=now)
    return {variable: values[name] for variable, name in variables.items()}


def _command(name: str, jobs: list[JobKind] | list[str]) -> str:
    return f"oolong secret set {name} {' '.join(f'--job {job}' for job in jobs)}"
