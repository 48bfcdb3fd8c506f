"""The agent protocol on the control plane, without HTTP: heartbeats, desired state, checkpoint uploads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Max, Q, QuerySet

from control_plane.assets.models import DatasetVersion
from control_plane.assets.storage import multipart, store, upload_lock
from control_plane.assets.storage.blob_columns import EMPTY_LINE
from control_plane.checkpoints import uploads
from control_plane.checkpoints.models import (
    Checkpoint,
    CheckpointContent,
    CheckpointState,
    CheckpointUpload,
    base_model_identity,
)
from control_plane.checkpoints.registry import kind_of
from control_plane.checkpoints.weights import Weights, weights_of
from control_plane.core.api.errors import or_not_found
from control_plane.experiments.models import RewardTest
from control_plane.fleet import services as fleet
from control_plane.fleet.access import may_use
from control_plane.fleet.models import Node
from control_plane.runs.fencing import check_epoch
from control_plane.runs.job_secrets import secret_variables
from control_plane.runs.locking import lock_run
from control_plane.runs.models import PENDING, Attempt, Job, Run
from control_plane.runs.node_reports import apply_report, record_shared_slots
from control_plane.runs.reconciler import record_stored_checkpoint
from control_plane.runs.remote_reward_rules import reward_origins
from control_plane.runs.runtime_overrides import runtime_overrides
from control_plane.runs.spec_resolution import function_fields
from control_plane.runs.trainer_gang import RENDEZVOUS, followers
from oolong.contracts.agent import (
    Artifact,
    DesiredAttempt,
    DesiredJob,
    HeartbeatRequest,
    PeerListener,
    TrainerGang,
    TrainerNode,
    UploadReply,
)
from oolong.contracts.lifecycle import AttemptStatus, JobKind, JobState
from oolong.contracts.lora_adapter import WeightsReference
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.run_spec.remote_rewards import remote_rewards
from oolong.contracts.user_code import SAMPLES

# A playground reads no rows, but the protocol requires a dataset: an empty line.
EMPTY_DATASET = Artifact(sha256=hashlib.sha256(EMPTY_LINE).hexdigest(), bytes=len(EMPTY_LINE), kind="dataset")


def process_heartbeat(node: Node, report: HeartbeatRequest, *, now: datetime) -> list[str]:
    """Record what a node has and runs. Returns the IDs of jobs that the node may forget."""
    with transaction.atomic():
        locked = Node.objects.select_for_update().get(pk=node.pk)
        fleet.require_not_revoked(locked)
        heartbeat = fleet.record_heartbeat(locked, report.inventory, now=now)
        record_shared_slots(locked, heartbeat.newly_occupied, now=now)
    return apply_report(node, report.jobs, now=now)


def desired_attempts(node: Node) -> list[DesiredAttempt]:
    """The attempts that the node is to run. For a team that may no longer use the node's pool (runs.lease_reaper moves
    its runs), running jobs continue until they have stopped, and no new ones start."""
    attempts = (
        _attempts_with_jobs_on(node)
        .exclude(status=AttemptStatus.ENDED)
        .annotate(allowed=may_use(pool="node__pool", team="run__project__team"))
        .exclude(allowed=False, status=AttemptStatus.SCHEDULED)
        .select_related(
            "run__dataset_version", "run__evaluation_version", "run__base_model", "run__initial_checkpoint__base_model",
            "resume_checkpoint", "node",
        )
        .prefetch_related("jobs", "run__functions__function")
        .order_by("pk")
    )  # fmt: skip
    slots = node.slots.filter(present=True, healthy=True).count() if attempts else 0
    desired = [_desired(attempt, node, slots_of_node=slots) for attempt in attempts]
    return [attempt for attempt in desired if attempt.jobs]


def _attempts_with_jobs_on(node: Node) -> QuerySet[Attempt]:
    """Attempts on the node, and those with ranks of a trainer there, or an engine that has not exited."""
    remote = Job.objects.filter(~Q(state=JobState.EXITED) | Q(kind=JobKind.TRAINER), node=node)
    return Attempt.objects.filter(Q(node=node) | Q(pk__in=remote.values("attempt")))


def _desired(attempt: Attempt, node: Node, *, slots_of_node: int) -> DesiredAttempt:
    run, remote = attempt.run, attempt.node_id != node.pk
    weights = _initial_weights(run)
    here = [job for job in attempt.jobs.all() if (job.node_id or attempt.node_id) == node.pk]
    return DesiredAttempt(
        run_id=run.pk,
        attempt_id=attempt.pk,
        attempt_number=attempt.number,
        epoch=attempt.epoch,
        # Without unused sections, and without the placement, which is decided here.
        spec={
            name: value for name, value in run.spec.items() if value not in (None, []) and name != "placement"
        },
        dataset=EMPTY_DATASET if run.kind == "playground" else _dataset_artifact(run.trained_on),
        evaluation=_dataset_artifact(run.evaluation_version) if run.evaluation_version else None,
        model=_model_artifact(weights),
        model_path=run.model_path,
        model_files=_model_files(weights),
        adapters=[_checkpoint_artifact(checkpoint) for checkpoint in weights.adapters],
        initial_weights=_weights_reference(run),
        resume=_checkpoint_artifact(attempt.resume_checkpoint) if attempt.resume_checkpoint else None,
        sources=_sources(run),
        ports=_ports_of(job for job in here if job.is_remote) if remote else attempt.ports,
        token=attempt.token,
        jobs=[
            _desired_job(job, run)
            for job in sorted(here, key=lambda job: job.pk)
            # Evaluators and remote engines come and go during a run; exited ones are not part of the desired state.
            if not ((job.evaluates or job.is_remote) and job.state == JobState.EXITED)
            and (attempt.allowed or job.state != PENDING)  # type: ignore[attr-defined]
        ],
        live=runtime_overrides(run),
        tokens_generated_before=_tokens_generated_before(attempt),
        # On a node that the run fills, its controller must not wait for an evaluator.
        evaluators=not remote and run.spec.get("evaluation") is not None and slots_of_node > run.slots_needed,
        listener=_listener(attempt) if not remote else None,
        trainer_node=_trainer_node(attempt) if remote and attempt.certificate else None,
        gang=_gang(attempt, node),
        reward_origins=reward_origins() if not remote and remote_rewards(run.spec) else [],
    )


def _ports_of(engines: Iterable[Job]) -> dict[str, int]:
    return {f"engine-{job.index}": job.engine_port for job in engines}


def _gang(attempt: Attempt, node: Node) -> TrainerGang | None:
    """For a node with ranks of a trainer on several nodes."""
    ranks = {job.placed_on.pk: job.index for job in followers(attempt)}
    node_rank = 0 if node.pk == attempt.node_id else ranks.get(node.pk)
    if not ranks or node_rank is None:
        return None
    return TrainerGang(
        address=attempt.peer_address,
        port=attempt.ports[RENDEZVOUS],
        nodes=len(ranks) + 1,
        node_rank=node_rank,
        own_address=node.peer_address,
    )


def _listener(attempt: Attempt) -> PeerListener | None:
    if not attempt.certificate:
        return None
    return PeerListener(
        address=attempt.peer_address, certificate=attempt.certificate, private_key=attempt.private_key
    )


def _trainer_node(attempt: Attempt) -> TrainerNode:
    return TrainerNode(
        address=attempt.peer_address,
        ports={name: attempt.ports[name] for name in ("controller", "reward", "weights")},
        certificate=attempt.certificate,
    )


def _sources(run: Run) -> dict[str, Artifact]:
    versions = {version.ref: version for version in run.functions.all()}
    sources = {
        place.source: Artifact(sha256=version.sha256, bytes=version.bytes, kind="source")
        for place in (function_fields(RunSpec.model_validate(run.spec)) if versions else [])
        if (version := versions.get(place.reference or "")) is not None
    }
    test = RewardTest.objects.filter(run=run).first() if run.kind == "reward_test" else None
    if test is not None and test.samples_sha256:
        sources[SAMPLES] = Artifact(sha256=test.samples_sha256, bytes=test.samples_bytes, kind="source")
    return sources


def _tokens_generated_before(attempt: Attempt) -> int:
    """Tokens that the run had generated when this attempt began. Those that its checkpoint does not count are lost."""
    earlier = Attempt.objects.filter(run=attempt.run_id, number__lt=attempt.number)
    return earlier.aggregate(most=Max("tokens_generated"))["most"] or 0


def _desired_job(job: Job, run: Run) -> DesiredJob:
    return DesiredJob(
        job_id=job.pk,
        name=job.name,
        kind=JobKind(job.kind),
        index=job.index,
        slots=job.slots,
        restarts=job.restarts,
        stop=job.stop_asked_at is not None,
        grace_seconds=job.grace_seconds,
        engine_port=job.engine_port,
        session_port=job.session_port,
        evaluates=job.evaluates,
        secrets=sorted(secret_variables(run, JobKind(job.kind))),
    )


def _dataset_artifact(version: DatasetVersion) -> Artifact:
    return Artifact(sha256=version.sha256, bytes=version.bytes, kind="dataset")


def _checkpoint_artifact(checkpoint: Checkpoint) -> Artifact:
    return Artifact(sha256=checkpoint.tar_sha256, bytes=checkpoint.bytes, kind="checkpoint")


def _initial_weights(run: Run) -> Weights:
    if run.initial_checkpoint is not None:
        return weights_of(run.initial_checkpoint)
    return Weights(run.base_model, None, ())


def _weights_reference(run: Run) -> WeightsReference:
    if run.initial_checkpoint is not None:
        checkpoint = run.initial_checkpoint
        return WeightsReference(kind="checkpoint", id=checkpoint.pk, sha256=checkpoint.manifest_sha256)
    assert run.base_model is not None
    return WeightsReference(kind="base_model", **base_model_identity(run.base_model))


def _model_artifact(weights: Weights) -> Artifact | None:
    if weights.model is not None:
        return _checkpoint_artifact(weights.model)
    assert weights.base_model is not None
    if weights.base_model.source == "path":
        return None
    return Artifact(sha256=weights.base_model.sha256, bytes=weights.base_model.bytes, kind="model")


def _model_files(weights: Weights) -> dict[str, int]:
    """For a model path: file sizes that its check found, by which a node notices that the directory has changed."""
    model = weights.base_model
    if model is None or not model.path or not model.report:
        return {}
    return {file["name"]: file["bytes"] for file in model.report["files"]}


def may_read(node: Node, sha256: str) -> bool:
    """Whether the blob is an input of a current attempt of this node, of a team that may use its pool."""
    needed = (
        Q(run__dataset_version__sha256=sha256)
        | Q(run__evaluation_version__sha256=sha256)
        | Q(run__base_model__sha256=sha256)
        | Q(run__initial_checkpoint__tar_sha256=sha256)
        | Q(run__functions__sha256=sha256)
        | Q(run__reward_test__samples_sha256=sha256)
        | Q(resume_checkpoint__tar_sha256=sha256)
    )
    if sha256 == EMPTY_DATASET.sha256:
        needed |= Q(run__kind="playground")
    current = (
        _attempts_with_jobs_on(node)
        .filter(may_use(pool="node__pool", team="run__project__team"))
        .exclude(status=AttemptStatus.ENDED)
    )
    return bool(sha256) and (current.filter(needed).exists() or _is_below_an_adapter(current, sha256))


def _is_below_an_adapter(attempts: QuerySet[Attempt], sha256: str) -> bool:
    """Whether the blob is of the weights that an attempt's initial adapter was trained on."""
    starts = attempts.filter(run__initial_checkpoint__content=CheckpointContent.ADAPTER)
    for attempt in starts.select_related("run__initial_checkpoint__base_model"):
        weights = _initial_weights(attempt.run)
        if sha256 in {one.tar_sha256 for one in weights.checkpoints}:
            return True
        if weights.base_model is not None and weights.base_model.sha256 == sha256:
            return True
    return False


# --- checkpoint uploads -----------------------------------------------------------------------------------


def announce_checkpoint(
    node: Node,
    attempt_id: str,
    *,
    step: int,
    manifest_sha256: str,
    tar_sha256: str,
    bytes: int,
    epoch: int,
    final: bool,
    now: datetime,
) -> UploadReply:
    """Begin or resume the upload of a committed checkpoint. Call inside a transaction."""
    attempt = _attempt_of(node, attempt_id)
    run = lock_run(attempt.run_id)
    attempt.refresh_from_db()
    check_epoch(attempt, run, epoch)
    checkpoint, _ = Checkpoint.objects.get_or_create(
        attempt_id=attempt.pk,
        manifest_sha256=manifest_sha256,
        defaults={
            "project": run.project, "run_id": run.pk, "run_name": run.name, "attempt_number": attempt.number,
            "node_id": node.pk, "step": step, "kind": kind_of(run.kind, final=final), "final": final, "bytes": bytes,
            "parent": attempt.resume_checkpoint, **run.checkpoint_content, "created_at": now,
            "metrics": {"reward_mean": run.reward_mean, "staleness_mean": run.staleness_mean},
        },
    )  # fmt: skip
    if final and not checkpoint.final:
        checkpoint.final, checkpoint.kind = True, kind_of(run.kind, final=True)
        checkpoint.save(update_fields=["final", "kind"])
    if checkpoint.state == CheckpointState.STORED:
        return UploadReply(upload_id="", part_bytes=multipart.size_for(bytes), received_parts=[], stored=True)
    upload = uploads.begin_checkpoint_upload(
        checkpoint, node_id=node.pk, tar_sha256=tar_sha256, bytes=bytes, epoch=epoch
    )
    return upload_reply(upload)


def complete_upload(node: Node, upload_id: str, *, now: datetime) -> UploadReply:
    """Join the parts, verify the result, and mark the checkpoint STORED. Idempotent."""
    upload = upload_of(node, upload_id)
    if upload.checkpoint.state == CheckpointState.STORED:
        return upload_reply(upload, stored=True)
    attempt = Attempt.objects.select_related("run").get(pk=upload.checkpoint.attempt_id)
    check_epoch(attempt, attempt.run, upload.epoch)
    with upload_lock.exclusive(upload.pk):
        blob, refusal = multipart.try_join(upload.pk, upload.bytes, sha256=upload.tar_sha256)
        with store.delete_on_rollback(blob.sha256), transaction.atomic():
            run = lock_run(upload.checkpoint.run_id)
            upload.checkpoint.refresh_from_db()
            if upload.checkpoint.state != CheckpointState.STORED:
                attempt.refresh_from_db()
                check_epoch(attempt, run, upload.epoch)
                if refusal is not None:
                    raise refusal
                checkpoint = uploads.complete_checkpoint_upload(upload, blob, now=now)
                record_stored_checkpoint(run, checkpoint, now=now)
    return upload_reply(upload, stored=True)


def upload_of(node: Node, upload_id: str) -> CheckpointUpload:
    return or_not_found(
        CheckpointUpload.objects.filter(pk=upload_id, node_id=node.pk).select_related("checkpoint").first(),
        "upload",
        upload_id,
    )


def upload_reply(upload: CheckpointUpload, *, stored: bool = False) -> UploadReply:
    stored = stored or upload.checkpoint.state == CheckpointState.STORED
    return UploadReply(
        upload_id=upload.pk, part_bytes=multipart.size_for(upload.bytes),
        received_parts=[] if stored else store.received_parts(upload.pk), stored=stored,
    )  # fmt: skip


def _attempt_of(node: Node, attempt_id: str) -> Attempt:
    return or_not_found(Attempt.objects.filter(pk=attempt_id, node=node).first(), "attempt", attempt_id)
