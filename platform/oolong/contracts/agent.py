"""The agent protocol: JSON over HTTPS, outbound from the node (DESIGN section 4, SEMANTICS section 7).

Enroll once, then a heartbeat every 10 s (at once when something changed): observed state in full up, desired
state in full down. Level-triggered, so a lost or repeated message changes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from oolong.contracts.lifecycle import EndReason, JobKind, JobState
from oolong.contracts.lora_adapter import WeightsReference
from oolong.contracts.runtime_overrides import RuntimeOverrides

# Agent and server must have the same protocol version. Raise it with a change that the other side would misread.
PROTOCOL = 1


# Numbers and names of a node are stored, so what a message may hold is what their columns hold.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    pass


class JobIsolation(StrEnum):
    """How a node keeps jobs from the agent and from jobs of other attempts."""

    UID = "uid"  # a uid of its own per attempt, and a view of the machine that shows its own files alone
    USERNS = "userns"  # the same view in a user namespace per job, under the agent's own uid
    NONE = "none"  # jobs can read and change what the agent can


class Provider(StrEnum):
    """What has started the agent of a node."""

    MANUAL = "manual"  # a person
    LOCAL = "local"  # the local stack
    SLURM = "slurm"  # a job of a Slurm cluster
    KUBERNETES = "kubernetes"  # a pod


class SlotProcess(Wire, frozen=True, kw_only=True):
    """A process on a GPU that belongs to no job of Oolong."""

    pid: int
    user: Annotated[str, msgspec.Meta(max_length=80)] = ""
    command: Annotated[str, msgspec.Meta(max_length=200)] = ""
    memory_bytes: Bytes = 0  # of the GPU


class SlotInventory(Wire, frozen=True, kw_only=True):
    slot: Annotated[str, msgspec.Meta(max_length=80)]  # "cpu-0", or the GPU's UUID
    device: Annotated[str, msgspec.Meta(max_length=16)]  # cpu | cuda
    model: str = ""  # CPU or GPU model name
    memory_bytes: Bytes = 0
    healthy: bool = True
    reason: str = ""  # why not healthy
    # Readings of the last half minute; None: not measured.
    utilization: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    memory_used_bytes: Bytes | None = None
    celsius: float | None = None
    occupied_by: Annotated[list[SlotProcess], msgspec.Meta(max_length=64)] = []  # nothing is placed upon it


class Inventory(Wire, frozen=True, kw_only=True):
    hostname: str
    agent_version: str
    boot_id: str  # changes when the machine reboots
    cpu_count: Count
    memory_bytes: Bytes
    disk_free_bytes: Bytes
    slots: list[SlotInventory]
    model_roots: list[str] = []  # directories of models that its owner offers to projects
    job_isolation: JobIsolation = JobIsolation.NONE  # an agent that does not report it has none
    job_isolation_reason: str = ""  # why there is none
    # Where engines on other nodes reach the jobs of this one; "": its jobs listen on loopback only.
    peer_address: Annotated[str, msgspec.Meta(max_length=45)] = ""
    peer_network: Annotated[str, msgspec.Meta(max_length=60)] = ""  # whose nodes reach each other
    provider: Provider = Provider.MANUAL
    provider_job: Annotated[str, msgspec.Meta(max_length=120)] = ""  # ID of the Slurm job, or name of the pod
    partition: Annotated[str, msgspec.Meta(max_length=120)] = ""  # of the Slurm job
    account: Annotated[str, msgspec.Meta(max_length=120)] = ""
    # Unix seconds: when the provider ends the node with all that runs there; None: not known, or never.
    ends_at: Annotated[float, msgspec.Meta(ge=0, le=253402300799)] | None = None


class EnrollRequest(Wire, frozen=True, kw_only=True):
    """POST /api/v1/agent/enroll with the single-use token as bearer."""

    name: Annotated[str, msgspec.Meta(max_length=120)]
    inventory: Inventory
    protocol: int = PROTOCOL


class EnrollReply(Wire, frozen=True, kw_only=True):
    node_id: str
    credential: str  # bearer token of every later call; shown once
    heartbeat_seconds: float = 10.0
    lease_ttl_seconds: float = 45.0
    orphan_ttl_seconds: float = 4500.0
    protocol: int = PROTOCOL  # of the server


class OutboxOffset(Wire, frozen=True, kw_only=True):
    file: str  # name inside the job's outbox; "output.log#<incarnation>" for a log
    bytes: Bytes  # bytes written so far (whole lines)
    shipped: Bytes


class ObservedJob(Wire, frozen=True, kw_only=True):
    job_id: str
    attempt_id: str
    epoch: Count
    state: JobState
    incarnation: Count = 0  # restarts in place so far
    pid: Count = 0
    exit_code: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    reason: EndReason | None = None  # the job's own result, or the agent's (say, preparation_failed)
    message: str = ""
    outbox: list[OutboxOffset] = []  # for an exited job these are final
    # While it is preparing: of all inputs of its attempt. 0 of 0: not known.
    fetched_bytes: Bytes = 0
    input_bytes: Bytes = 0


class HeartbeatRequest(Wire, frozen=True, kw_only=True):
    """POST /api/v1/agent/heartbeat"""

    inventory: Inventory
    jobs: list[ObservedJob]
    started_at: float  # unix seconds of this agent process
    protocol: int = PROTOCOL


class Hello(Wire, frozen=True, kw_only=True):
    """The part of a request that is decoded first: other fields may differ in another protocol."""

    protocol: int = PROTOCOL


class Artifact(Wire, frozen=True, kw_only=True):
    """An input: fetched by ranged GET /api/v1/agent/artifacts/{sha256}, verified, kept in the node cache."""

    sha256: str
    bytes: int
    kind: str  # dataset, source (a file) | model (tar of a Hugging Face directory) | checkpoint (tar)


class DesiredJob(Wire, frozen=True, kw_only=True):
    job_id: str
    name: str
    kind: JobKind
    index: int
    slots: list[str]
    restarts: int  # restarts in place allowed within restart_window_seconds
    restart_window_seconds: float = 600.0
    stop: bool = False  # end it: SIGTERM, after grace_seconds SIGKILL
    grace_seconds: float = 15.0
    engine_port: int = 0  # of an engine that joins a live attempt; 0: the attempt's own list
    session_port: int = 0
    evaluates: str = ""  # of an engine beside those of the run: the task that it is there for
    secrets: list[str] = []  # variables whose values the agent asks for each time that it starts the job


class SecretsRequest(Wire, frozen=True, kw_only=True):
    """POST /api/v1/agent/jobs/{job_id}/secrets, just before an incarnation of the job is started."""

    epoch: Count
    incarnation: Count = 0


class SecretsReply(Wire, frozen=True, kw_only=True):
    """409 secret_missing: the job cannot have what its run names. Values are kept in memory and nowhere else."""

    variables: dict[str, str]


class PeerListener(Wire, frozen=True, kw_only=True):
    """For the trainer's node: its controller and reward service listen on this address too, with TLS, and published
    weights are served there. The ports are those of the attempt."""

    address: str
    certificate: str  # PEM, of this attempt alone
    private_key: str


class TrainerNode(Wire, frozen=True, kw_only=True):
    """For a node that has only engines of the attempt: where its controller, rewards and weights are."""

    address: str
    ports: dict[str, int]  # controller, reward, weights
    certificate: str


class TrainerGang(Wire, frozen=True, kw_only=True):
    """The nodes of a trainer whose ranks are on several. They exchange tensors in the peer network, unencrypted."""

    address: str  # peer address of node 0, where the ranks meet
    port: int
    nodes: int
    node_rank: int  # of this node; 0: it has the controller and rank 0
    own_address: str  # peer address of this node


class DesiredAttempt(Wire, frozen=True, kw_only=True):
    """One attempt's part on this node. Jobs of attempts that are no longer named are ended and forgotten."""

    run_id: str
    attempt_id: str
    attempt_number: int
    epoch: int
    spec: dict[str, object]  # resolved RunSpec
    dataset: Artifact
    evaluation: Artifact | None
    model: Artifact | None  # None when the model is a path on the node
    model_path: str  # "" or a path below a directory that the node offers
    model_files: dict[str, int] = {}  # bytes of each file of that path, as they were when it was checked
    adapters: list[Artifact] = []  # checkpoints with adapters for that model, to merge in this order
    initial_weights: WeightsReference = WeightsReference()  # what model and adapters are in the registry
    resume: Artifact | None  # a STORED checkpoint
    sources: dict[str, Artifact] = {}  # uploaded source by contracts.user_code.SourceKind
    ports: dict[str, int]  # controller, reward, engine-0, engine-1
    token: str
    jobs: list[DesiredJob]
    live: RuntimeOverrides = RuntimeOverrides()  # what was changed since the run was submitted
    tokens_generated_before: int = 0  # by earlier attempts of the run, as far as they told
    evaluators: bool = False  # an evaluation may get an idle slot of this node, beside the run's engines
    listener: PeerListener | None = None  # None: no engine of the attempt may be on another node
    trainer_node: TrainerNode | None = None  # None: this node, or nothing here needs it
    gang: TrainerGang | None = None  # None: all ranks of the trainer are on one node
    reward_origins: list[
        str
    ] = []  # of the services that the run's rewards may ask: https://judge.example.com


class HeartbeatReply(Wire, frozen=True, kw_only=True):
    attempts: list[DesiredAttempt]
    acknowledged: list[str]  # job ids whose final state and outbox the server has read to the end
    imports: list[str] = []  # models to fetch: those of this node first, then one that waits for a node
    model_checks: list[
        str
    ] = []  # models below this node's directories to look at: its own first, then one that waits
    heartbeat_seconds: float = 10.0
    revision: int = (
        0  # of the desired state; handed back as ?revision=, so that a waiting heartbeat knows what is new
    )


class TelemetryChunk(Wire, frozen=True, kw_only=True):
    """Bytes of one file from an offset on."""

    job_id: str
    file: str  # as in OutboxOffset
    offset: Bytes  # of the first byte in the file
    bytes: Bytes
    skipped: Bytes = 0  # in place of bytes: the length of an outbox line that is too long to ship


LONGEST_LINE = 1024 * 1024  # of an outbox; a longer one is counted and reported, and not shipped
BATCH_CHUNKS = 128
BATCH_BYTES = 1024 * 1024  # of all chunks
BATCH_HEAD_BYTES = 256 * 1024


class TelemetryBatchHead(Wire, frozen=True, kw_only=True):
    """POST /api/v1/agent/telemetry. The body is this as one line of JSON, a newline, and then the
    bytes of the chunks, one after another. At most one chunk of a file."""

    chunks: list[TelemetryChunk]


class ChunkReply(Wire, frozen=True, kw_only=True):
    """Result of one chunk, independent of the others."""

    status: (
        int  # 200 stored | 409 it begins beyond `offset` | 404, 413, 422, 500, 503: nothing of it was stored
    )
    offset: int = 0  # of 200 and 409: continue there
    code: str = ""  # of the other ones, as in docs/reference/errors.md
    detail: str = ""


class TelemetryBatchReply(Wire, frozen=True, kw_only=True):
    chunks: list[ChunkReply]  # in the order of the request


class UploadReply(Wire, frozen=True, kw_only=True):
    """Reply of the checkpoint upload calls: parts that the server already holds."""

    upload_id: str
    part_bytes: int
    received_parts: list[int]
    stored: bool = False
