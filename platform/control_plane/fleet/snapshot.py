"""The scheduler's input and output for one pool: plain data, no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Literal


@dataclass(frozen=True)
class SlotSnapshot:
    name: str
    device: str = "cpu"  # cpu | cuda
    memory_bytes: int = 0
    model: str = ""  # of the GPU


@dataclass(frozen=True)
class NodeSnapshot:
    id: str
    name: str
    free: tuple[SlotSnapshot, ...]  # healthy slots without a lease
    held: tuple[SlotSnapshot, ...]  # healthy slots with a lease
    accepts: bool  # READY, not cordoned, not draining
    state: str = ""  # why it does not accept jobs: "cordoned"
    model_roots: tuple[str, ...] = ()  # directories of models
    isolates_jobs: bool = False  # from its agent and from each other
    returns_at: datetime | None = None  # when its maintenance ends and it accepts jobs again
    peer_network: str = ""  # nodes with the same one reach each other; "": no node reaches it


@dataclass(frozen=True)
class Request:
    id: str
    name: str
    team: str
    priority: int
    slots: int
    submitted_at: datetime
    trainer_ranks: int = 1  # slots of the trainer, each on a separate device
    not_before: datetime | None = None
    model_path: str = ""  # must be below a model directory of the node
    isolated: bool = False  # its trainer runs user code, so the node must isolate jobs
    device: str = ""  # required device of its slots; "": any
    slot_memory_bytes: int = 0  # required memory of each slot
    gpu_model: str = ""  # part of the required model name of each slot, in lower case; "": any
    preemptible: bool = False  # a playground or reward test: it never preempts others
    project: str = ""  # of the team
    exclude_nodes: frozenset[str] = frozenset()  # names or IDs of nodes on which it is never placed
    avoid_nodes: frozenset[str] = (
        frozenset()
    )  # IDs of nodes on which it is placed only if no other node could hold it
    saves_checkpoints: bool = False  # it has a trainer: it can leave its slots and continue later
    predicted_seconds: float | None = None  # p90 of the time that it takes; None: unknown
    promised_start: datetime | None = None  # earliest start that an earlier plan has reserved slots for
    max_nodes: int = 1  # over which its ranks may be spread if no node is large enough


class HolderKind(IntEnum):
    """In the order in which they are preempted."""

    ENGINE = 0  # an engine or evaluator on a slot that was idle
    PLAYGROUND = 1  # or a reward test
    RUN = 2  # only while its team or project borrows, for a run within the nominal quota of its own


@dataclass(frozen=True)
class Holder:
    """A holder of slots that may be preempted. A run over several nodes is one holder per node, with the same ID."""

    id: str
    team: str
    node: str
    slots: tuple[str, ...]  # names
    leaving: bool  # it is stopping already: its slots become free soon
    kind: HolderKind = HolderKind.ENGINE
    protected: bool = False  # it has not run for the minimum runtime yet
    lost_gpu_seconds: float = (
        0.0  # slots times seconds since the last checkpoint, which a preemption may lose
    )
    project: str = ""


@dataclass(frozen=True)
class TeamQuota:
    """A team's share of a pool. It may borrow idle slots beyond `nominal`, up to `limit`."""

    nominal: int = 0  # slots that the team can always get: borrowers return them
    limit: int | None = None  # most slots at once; None: no limit
    lending_limit: int | None = None  # most unused nominal slots that others may borrow; None: all

    @property
    def never_lent(self) -> int:
        return 0 if self.lending_limit is None else max(0, self.nominal - self.lending_limit)


@dataclass(frozen=True)
class ProjectQuota:
    """A project's share of what its team may hold in a pool."""

    nominal: int = 0  # slots of the team's nominal quota that its other projects return to this one
    limit: int | None = None  # most slots at once; None: no limit but the team's


@dataclass(frozen=True)
class Reservation:
    """Slots that are reserved for a team from a start to an end; without a team, nodes that are maintained then."""

    id: str
    starts_at: datetime
    ends_at: datetime
    title: str  # "team blue", or the reason of the maintenance, for messages
    team: str = ""  # "": nobody may use the slots
    project: str = ""  # whose runs alone may use the slots; "": all projects of the team
    slots: int = 0  # on any nodes; 0: all slots of `nodes`
    nodes: tuple[str, ...] = ()
    device: str = ""  # of the slots; "": any
    # Of a node that its provider ends: until so long before the start, runs that may take longer can start there too
    lead: timedelta | None = None
    # Node → names of its slots that an earlier plan has chosen for `slots`
    allocation: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_maintenance(self) -> bool:
        return not self.team

    def owns(self, team: str, project: str) -> bool:
        """Whether the slots are kept for runs of this team and project."""
        return self.team == team != "" and self.project in ("", project)

    def overlaps(self, other: Reservation) -> bool:
        return self.starts_at < other.ends_at and other.starts_at < self.ends_at


@dataclass(frozen=True)
class LoanRequest:
    """A running attempt that wants idle slots."""

    attempt: str
    purpose: Literal["engines", "evaluator"]
    request: Request  # what the slots must offer
    nodes: tuple[str, ...]  # where; those of the first are preferred
    slots: int  # at most


@dataclass(frozen=True)
class Snapshot:
    now: datetime
    nodes: Sequence[NodeSnapshot]
    queue: Sequence[Request]
    used: Mapping[str, int]  # team → slots held
    quotas: Mapping[str, TeamQuota] = field(default_factory=dict)  # by team
    slot_hours: Mapping[str, float] = field(default_factory=dict)  # team → use of the past, with a half-life
    pool: str = "default"  # its name, for messages
    teams: frozenset[str] | None = None  # the teams that may use the pool; None: all
    holders: Sequence[Holder] = ()
    loan_requests: Sequence[LoanRequest] = ()  # served in this order
    project_used: Mapping[str, int] = field(default_factory=dict)  # project → slots held
    project_quotas: Mapping[str, ProjectQuota] = field(default_factory=dict)  # by project
    # (node, name of a held slot) → when it becomes free (p50); what is unknown is left out
    free_at: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    # Team or project whose budget is used up → a sentence about it
    exhausted: Mapping[str, str] = field(default_factory=dict)
    reservations: Sequence[
        Reservation
    ] = ()  # that have not ended; with them, `holders` are all holders of slots

    def quota(self, team: str) -> TeamQuota:
        return self.quotas.get(team) or TeamQuota()

    def project_quota(self, project: str) -> ProjectQuota:
        return self.project_quotas.get(project) or ProjectQuota()


class WaitCode(StrEnum):
    """Why a request waits."""

    NEVER_FITS = "never_fits"  # on the nodes that the pool has now
    QUOTA = "quota"  # the team's limit
    PROJECT_QUOTA = "project_quota"  # the project's limit
    NOT_LENT = "not_lent"  # slots are idle, but their teams do not lend them
    CAPACITY = "capacity"  # slots must become free
    BEHIND = "behind"  # slots are free, but reserved for a request ahead of it
    RESERVED = "reserved"  # slots are free, but reserved for a team for a time
    MAINTENANCE = "maintenance"  # slots are free, but their node is maintained or ends soon
    BUDGET = "budget"  # of the team or the project: it is used up
    DELAYED = "delayed"  # a retry that waits for its time


@dataclass(frozen=True)
class Wait:
    code: WaitCode
    message: str  # one sentence


@dataclass(frozen=True)
class Placement:
    request: str
    node: str
    slots: tuple[str, ...]
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()  # further nodes with slots for ranks of the trainer

    @property
    def parts(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """All nodes with their slots, the one with the controller first."""
        return ((self.node, self.slots), *self.others)


@dataclass(frozen=True)
class Preemption:
    holder: str
    kind: HolderKind
    request: str  # the queued request that gets the slots; "": a reservation keeps them
    lost_gpu_seconds: float
    why: str = ""  # of a reservation: for whom


@dataclass(frozen=True)
class Loan:
    request: LoanRequest
    slots: tuple[tuple[str, str], ...]  # (node, name of the slot); empty when none is idle


@dataclass(frozen=True)
class Plan:
    placements: tuple[Placement, ...]
    waiting: Mapping[str, Wait]  # by request, in the order of the queue
    preemptions: tuple[Preemption, ...] = ()
    loans: tuple[Loan, ...] = ()  # one for each loan request
    # The first request that waits for slots → its predicted start. A later plan gets it as its promised start.
    promises: Mapping[str, datetime] = field(default_factory=dict)
    # Reservation of a number of slots → node → names of these slots. A later plan gets it as its allocation.
    allocations: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)

    @property
    def positions(self) -> dict[str, int]:
        """Request → 1-based position among the requests that wait."""
        return {request: index for index, request in enumerate(self.waiting, start=1)}
