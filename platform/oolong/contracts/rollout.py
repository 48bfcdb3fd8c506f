"""Messages between rollout controller, rollout workers, reward service and trainer.

msgpack over HTTP: `POST /<verb>` with the request struct, `Authorization: Bearer <attempt token>`; 200 with
the reply struct, or `ErrorReply` with 409 (stale claim or epoch) or 400 (malformed request). The rules are in SEMANTICS
sections 1-4 and 6: the gate, claims, the ledger, the buffer.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    pass


class ErrorReply(Message, frozen=True, kw_only=True):
    code: str  # stale_claim, stale_epoch, unknown_claim, malformed, unauthorized
    message: str


# --- nouns ------------------------------------------------------------------------------------------------


class Turn(Message, frozen=True, kw_only=True):
    """A stretch of a trajectory that the policy sampled, or that the environment wrote, in one go."""

    tokens: int
    sampled: bool  # by the policy; False: the environment wrote it
    finish_reason: Literal["stop", "length"] | None = None  # None while a turn is being sampled


class Trajectory(Message, frozen=True, kw_only=True):
    """One rollout of one prompt. T = number of completion tokens; all four lists have length T."""

    token_ids: list[int]  # [T] completion tokens, stop tokens and the environment's turns included
    loss_mask: list[int]  # [T] 1 where the policy sampled the token, 0 where the environment wrote it
    behavior_logprobs: list[float]  # [T] of the sampling distribution (logits / temperature); 0 off the mask
    policy_versions: list[int]  # [T] version that sampled each token; the environment's have a neighbour's
    finish_reason: Literal["stop", "length", "abort"]  # of the last sampled turn
    turns: list[Turn] = []  # in order, their tokens add up to T
    tool_calls: int = 0
    reward: float | None = None  # None until scored; scale and bias applied
    score: float | None = None  # the reward function's own value
    reward_parts: dict[str, float] = {}  # of a composite: each part's own score
    reward_result: str = ""  # the reward function's own word for it: exact, wrong_answer, time_limit ...
    reward_text: str = ""  # what a judge wrote
    interruptions: int = 0  # retractions > 0 or aborts with tokens, counted
    generate_seconds: float = 0.0
    reward_seconds: float = 0.0
    rollout: int | None = (
        None  # of its group, from 0, where a rollout may leave several; None: one of its own
    )


class Group(Message, frozen=True, kw_only=True):
    """The G trajectories of one prompt: the unit of advantage, admission and buffering."""

    group_id: str  # "<data epoch>-<row>-<repeat>"
    row: int
    prompt_token_ids: list[int]
    prompt: str  # rendered text, for people
    answer: str
    trajectories: list[Trajectory]


def rollout_indices(group: Group) -> list[int]:
    """Of each trajectory, the rollout that it is part of: a session leaves one per branch, or one per call."""
    return [
        place if trajectory.rollout is None else trajectory.rollout
        for place, trajectory in enumerate(group.trajectories)
    ]


def rollouts_of(group: Group) -> list[list[Trajectory]]:
    """The trajectories of each rollout, in the rollouts' order. A rollout has one reward, whatever it leaves."""
    indices = rollout_indices(group)
    rollouts: list[list[Trajectory]] = [[] for _ in range(max(indices, default=-1) + 1)]
    for index, trajectory in zip(indices, group.trajectories, strict=True):
        rollouts[index].append(trajectory)
    return rollouts


# What an attempt reaches while it comes up, in order: keys of `milestones` in the controller's document `pipeline`.
BOOT_MILESTONES = (
    "trainer_ready", "engine_serves", "first_rollout", "first_group", "first_batch", "first_step",
)  # fmt: skip


class PartialTrajectory(Message, frozen=True, kw_only=True):
    """What a worker gives back of one member: finished ones have a reward, others go on from their tokens."""

    index: int  # member of the group, 0-based
    trajectory: Trajectory
    finished: bool
    # What the workflow was told from outside, in the order in which it asked: scores and the texts of tools. It is
    # run again from its start and told the same; None is an answer that had not come yet.
    outcomes: list[float | str | None] = []


class ClaimedGroup(Message, frozen=True, kw_only=True):
    claim_id: str
    group_id: str
    row: int
    prompt_token_ids: list[int]
    prompt: str
    answer: str
    group_size: int
    claim_version: int
    partial: list[PartialTrajectory] = []  # from an earlier worker that gave the group back


Refusal = Literal[
    "staleness", "concurrency", "engine_behind", "paused", "no_prompts", "last_groups", "run_ending"
]

# --- worker -> controller -----------------------------------------------------------------------------------


class ClaimRequest(Message, frozen=True, kw_only=True):
    """POST /claim"""

    worker_id: str  # rollout-0/2: job name / incarnation
    engine_version: int  # version that the engine has loaded
    max_groups: int
    wait_seconds: float = 0.0  # long poll: how long the reply may wait for the first free place


class EvaluationPrompt(Message, frozen=True, kw_only=True):
    index: int
    prompt_token_ids: list[int]
    prompt: str
    answer: str
    source: str = ""  # of its dataset row


class EvaluationTask(Message, frozen=True, kw_only=True):
    """The engine leaves the claims, scores these prompts at exactly this version, and rejoins as new."""

    task_id: str  # see task_id_of
    version: int
    label: str  # start, end, step-40
    prompts: list[EvaluationPrompt]
    samples: int  # sampled completions per prompt besides the greedy one
    temperature: float
    greedy: bool = True
    max_new_tokens: int | None = None  # None: the training rollouts' own limit
    reward_timeout_seconds: float = 15.0
    weights: PublishedWeights | None = None  # to be loaded by an engine that has another version
    texts_only: bool = False  # completions come back as text and nobody scores them: a reward's test


def task_id_of(label: str, version: int) -> str:
    return f"{label}-v{version}"


def version_of_task(task_id: str) -> int:
    return int(task_id.rpartition("-v")[2])


def is_task_id(text: str) -> bool:
    """Whether it has the form, and a length that can be kept and shown."""
    label, _, version = text.rpartition("-v")
    return bool(label) and version.isdecimal() and len(version) <= 9 and len(text) <= 120


class ClaimReply(Message, frozen=True, kw_only=True):
    groups: list[ClaimedGroup] = []
    refusal: Refusal | None = None  # why not max_groups were handed out
    newest_version: int = 0
    evaluation: EvaluationTask | None = None
    ended: bool = False  # the run is over: release everything and exit


class RenewRequest(Message, frozen=True, kw_only=True):
    """POST /renew, every 5 s; claims live 30 s without it."""

    worker_id: str
    claim_ids: list[str]


class RenewReply(Message, frozen=True, kw_only=True):
    lost: list[str]  # claims that are no longer this worker's: cancel their requests
    newest_version: int
    paused: bool = False
    ended: bool = False


class SubmitRequest(Message, frozen=True, kw_only=True):
    """POST /submit: a finished and scored group; 409 when the claim is no longer this worker's."""

    worker_id: str
    claim_id: str
    group: Group


class FailRequest(Message, frozen=True, kw_only=True):
    """POST /fail: a workflow or reward error; the group becomes dropped{error}, its place returns."""

    worker_id: str
    claim_id: str
    reason: Literal["reward_error", "workflow_error", "engine_error", "filtered"]
    message: str
    generated_tokens: int = 0  # sampled by the policy
    kind: str = ""  # of a workflow_error: out_of_room, diverged, sandbox ...


class ReleaseRequest(Message, frozen=True, kw_only=True):
    """POST /release: the worker stops; members keep their tokens, logprobs and versions."""

    worker_id: str
    claim_id: str
    members: list[PartialTrajectory]
    lost_tokens: int = 0  # sampled under this claim by a workflow that cannot be moved


class DeregisterRequest(Message, frozen=True, kw_only=True):
    """POST /deregister: the worker stops for good after releasing its claims; the run continues without its engine."""

    worker_id: str


class SampledText(Message, frozen=True, kw_only=True):
    row: int
    text: str  # special tokens removed
    finish_reason: str


class EvaluationResult(Message, frozen=True, kw_only=True):
    """POST /evaluation_result"""

    worker_id: str
    task_id: str
    greedy_scores: list[float]  # [prompts], or none
    sampled_scores: list[list[float]]  # [prompts][samples]
    mean_tokens: float
    truncated_frac: float = 0.0
    seconds: float
    texts: list[SampledText] = []  # of a task that is texts_only


class EvaluationFailure(Message, frozen=True, kw_only=True):
    """POST /evaluation_failed: a completion got no score; a mean over the rest would mislead."""

    worker_id: str
    task_id: str
    cause: Literal["reward", "workflow", "engine"]
    message: str


class EvaluatorRequest(Message, frozen=True, kw_only=True):
    """POST /evaluator: an engine that is none of the run's asks what is left of the task that it came for."""

    worker_id: str  # evaluator-2/0
    task_id: str
    ready: bool  # its engine serves, and it has not begun; False: a sign of life


class EvaluatorReply(Message, frozen=True, kw_only=True):
    """Neither a task nor `leave` answers a sign of life: go on."""

    task: EvaluationTask | None = None
    leave: bool = False  # the task is done, given up or somebody else's


class StateRequest(Message, frozen=True, kw_only=True):
    """POST /state: waits up to wait_seconds until newest_version > after_version (long poll)."""

    after_version: int = -1
    wait_seconds: float = 0.0
    worker_id: str = ""  # of a worker: it counts as told when the reply says that the run has ended


class PublishedWeights(Message, frozen=True, kw_only=True):
    version: int
    directory: str
    manifest_sha256: str


class StateReply(Message, frozen=True, kw_only=True):
    newest_version: int  # -1 before the trainer's first announcement
    weights: PublishedWeights | None
    paused: bool
    ended: bool
    admissible_groups: int  # free places of the gate now
    refusal: Refusal | None
    ledger: LedgerCounts
    tokens: TokenCounts


class LedgerCounts(Message, frozen=True, kw_only=True):
    """Groups, each place from its own counter.

    drawn = trained + sum(dropped) + waiting + running + buffered + taken.
    """

    drawn: int = 0
    trained: int = 0
    dropped: dict[str, int] = {}  # error, stale, filtered, nonfinite, run_end
    waiting: int = 0  # drawn, to be claimed again
    running: int = 0
    buffered: int = 0
    taken: int = 0
    late_submits: int = 0
    errors: dict[str, int] = {}  # dropped{error} by FailRequest.reason


class TokenCounts(Message, frozen=True, kw_only=True):
    """In completion tokens: generated = trained + sum(dropped) + in_hand + lost_to_recovery."""

    generated: int = 0
    trained: int = 0
    dropped: dict[str, int] = {}
    in_hand: int = 0
    lost_to_recovery: int = 0


class AttemptClockRequest(Message, frozen=True, kw_only=True):
    """Rollout worker on another node than the trainer's."""


class AttemptClockReply(Message, frozen=True, kw_only=True):
    began_at: float  # unix seconds; zero of the time axis of all jobs of the attempt


class LoadClaimRequest(Message, frozen=True, kw_only=True):
    """POST /load_claim: keeps the newest version's files until ack, failure or 30 s without a heartbeat."""

    worker_id: str


class LoadClaimReply(Message, frozen=True, kw_only=True):
    weights: PublishedWeights | None


class Probe(Message, frozen=True, kw_only=True):
    """A fixed greedy continuation generated right after a load, to compare engine and trainer."""

    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]  # of the greedy tokens, untempered


class LoadTimings(Message, frozen=True, kw_only=True):
    wait_seconds: float = 0.0  # announced -> load started
    paused_seconds: float = 0.0  # pause sent -> continue answered
    load_seconds: float = 0.0  # update_weights call


class AckRequest(Message, frozen=True, kw_only=True):
    """POST /ack, after continue. ok=False names what failed; the engine is STALE and gets no claims."""

    worker_id: str
    version: int
    ok: bool
    message: str = ""
    probe: Probe | None = None
    timings: LoadTimings = LoadTimings()


class Ack(Message, frozen=True, kw_only=True):
    """The empty reply."""


# --- trainer -> controller ----------------------------------------------------------------------------------


class TrainedTokens(Message, frozen=True, kw_only=True):
    """What the trainer computed for the T completion tokens of a sampled trajectory; None where it trained none."""

    group_id: str
    member: int  # index in the group
    logprobs: list[float | None]  # [T] of the policy that the step began with; empty with `proximal: none`
    advantages: list[float | None]  # [T]


class PublishVersionRequest(Message, frozen=True, kw_only=True):
    """POST /publish_version: weights of `version` are complete on disk. Moves taken groups to trained.

    `outcome` says what happened to the batch that led here: trained, nonfinite (no update, then the version
    does not rise and `weights` is None), or none for the first announcement of an attempt.
    """

    version: int
    weights: PublishedWeights | None
    outcome: Literal["none", "trained", "nonfinite"]
    tokens: list[TrainedTokens] = []  # of the batch's trajectories in `TakeReply.sampled`


class TakeRequest(Message, frozen=True, kw_only=True):
    """POST /take: long poll for one batch to train at `version`. Only after announcing that version."""

    version: int
    groups: int
    wait_seconds: float = 10.0


class TakeReply(Message, frozen=True, kw_only=True):
    """`groups` is empty while there is no batch yet; ask again."""

    groups: list[Group]
    sampled: list[tuple[str, int]] = []  # (group id, member) of the trajectories that telemetry shows
    straggler_wait_seconds: float = 0.0  # part of the wait spent on stragglers although B groups were there
    buffered: int = 0
    ended: bool = False


class SnapshotRequest(Message, frozen=True, kw_only=True):
    """POST /snapshot: one atomic image at a step boundary, kept in the checkpoint as controller.msgpack."""

    version: int


class SnapshotReply(Message, frozen=True, kw_only=True):
    snapshot: bytes


class ProbesRequest(Message, frozen=True, kw_only=True):
    """POST /probes: acknowledged probes not yet handed out, for the comparison with the trainer's forward."""


class AckedProbe(Message, frozen=True, kw_only=True):
    worker_id: str
    version: int
    probe: Probe


class ProbesReply(Message, frozen=True, kw_only=True):
    probes: list[AckedProbe]


class StaleEngineRequest(Message, frozen=True, kw_only=True):
    """POST /stale_engine: the comparison failed; the engine gets no claims until it acks a newer version."""

    worker_id: str
    version: int
    max_difference: float


class EndRequest(Message, frozen=True, kw_only=True):
    """POST /end: no more batches will be taken. The controller runs the closing evaluation, then ends."""

    reason: Literal["completed", "stopped", "failed"]


# --- worker -> reward service -------------------------------------------------------------------------------


class ScoreRequest(Message, frozen=True, kw_only=True):
    """POST /score: one completion. The reward function and its options come from the attempt's spec."""

    prompt: str
    completion: str  # decoded text, special tokens removed
    answer: str
    finish_reason: str
    row: int = -1
    purpose: Literal["training", "evaluation"] = "training"  # an evaluation may name a reward of its own


class ScoreReply(Message, frozen=True, kw_only=True):
    """status `ok` has a score; `error` is never a reward: the group is failed with reward_error."""

    status: Literal["ok", "error"]
    score: float | None = None
    parts: dict[str, float] = {}  # of a composite: each part's own score
    result: str = ""  # the function's own word for it: exact, wrong_answer, time_limit ...
    forgeable: bool = False  # the completion could have forged the score
    text: str = ""  # what a judge wrote, for people
    kind: str = ""  # of an error: verifier_error | sandbox_error
    message: str = ""
    seconds: float = 0.0


class ExecuteRequest(Message, frozen=True, kw_only=True):
    """POST /execute: Python run in a sandbox of its own. Refused (no_sandbox) where the node has none."""

    code: str
    stdin: str = ""
    wall_seconds: float = 10.0
    memory_bytes: int = 512 * 1024**2
    output_bytes: int = 16 * 1024  # of standard output, standard error and value, each


class ExecuteReply(Message, frozen=True, kw_only=True):
    status: str  # an oolong.sandbox.Status: ok, failed, wall_limit, memory_limit ...
    stdout: str = ""
    stderr: str = ""  # with the traceback
    value: str | None = None  # repr of the last expression, if the code ends with one
    seconds: float = 0.0
    wait_seconds: float = 0.0  # for a free sandbox, before that
