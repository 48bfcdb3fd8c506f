"""Checks the quotas of teams and projects while the queue of one pool is placed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from control_plane.fleet.snapshot import Holder, HolderKind, Request, Snapshot, Wait, WaitCode


@dataclass
class QuotaUsage:
    """Slots of teams and projects, including the placements so far."""

    snapshot: Snapshot
    used: dict[str, int]  # team → slots held
    held: dict[str, int]  # the same without slots of HolderKind.ENGINE and PLAYGROUND, who leave at once
    project_used: dict[str, int]  # the same two by project
    project_held: dict[str, int]
    available: int  # slots that are free or held by such borrowers

    def add(self, request: Request) -> None:
        """Count a placement of the request."""
        for slots in (self.used, self.held):
            slots[request.team] = slots.get(request.team, 0) + request.slots
        for slots in (self.project_used, self.project_held):
            slots[request.project] = slots.get(request.project, 0) + request.slots
        self.available -= request.slots

    def within_nominal(self, request: Request) -> bool:
        """Whether the slots of the request are its team's own."""
        after = self.held.get(request.team, 0) + request.slots
        return not request.preemptible and after <= self.snapshot.quota(request.team).nominal

    def within_project_nominal(self, request: Request) -> bool:
        """Whether the slots of the request are its project's own share of its team's."""
        after = self.project_held.get(request.project, 0) + request.slots
        return not request.preemptible and after <= self.snapshot.project_quota(request.project).nominal

    def limits(self, request: Request) -> tuple[tuple[str, int | None, int], tuple[str, int | None, int]]:
        """The team and the project of the request: id, most slots at once (None: no limit), slots held."""
        team, project = request.team, request.project
        return (
            (team, self.snapshot.quota(team).limit, self.used.get(team, 0)),
            (project, self.snapshot.project_quota(project).limit, self.project_used.get(project, 0)),
        )

    def refusal(self, request: Request) -> Wait | None:
        """Why the request may not have the slots, free or not; None when it may."""
        kinds = (("team", WaitCode.QUOTA), ("project", WaitCode.PROJECT_QUOTA))
        for (of, code), (_, limit, used) in zip(kinds, self.limits(request), strict=True):
            if limit is not None and used + request.slots > limit:
                return Wait(code, _over_limit(of, limit, used, request))
        if self.within_nominal(request):
            return None
        unlent = sum(
            max(0, quota.never_lent - self.held.get(team, 0))
            for team, quota in self.snapshot.quotas.items()
            if team != request.team
        )
        if unlent and request.slots > self.available - unlent:
            message = (
                f"needs {slot_count(request.slots)} beyond the team's nominal quota; of {self.available} that are "
                f"idle, other teams do not lend {unlent}"
            )
            return Wait(WaitCode.NOT_LENT, message)
        return None


def quota_usage(snapshot: Snapshot, borrowers: Iterable[Holder]) -> QuotaUsage:
    """The slots of teams and projects before anything is placed. `borrowers` are the holders of slots that count toward
    quotas; those of the snapshot are the ones who can leave theirs for others."""
    held, project_held = dict(snapshot.used), dict(snapshot.project_used)
    accepting = {node.id for node in snapshot.nodes if node.accepts}
    available = sum(len(node.free) for node in snapshot.nodes if node.accepts)
    for holder in borrowers:
        if holder.kind != HolderKind.RUN:
            held[holder.team] = held.get(holder.team, 0) - len(holder.slots)
            project_held[holder.project] = project_held.get(holder.project, 0) - len(holder.slots)
    for holder in snapshot.holders:
        if holder.kind != HolderKind.RUN:
            available += len(holder.slots) if holder.node in accepting else 0
    return QuotaUsage(
        snapshot, dict(snapshot.used), held, dict(snapshot.project_used), project_held, available
    )


def slot_count(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _over_limit(of: str, limit: int, used: int, request: Request) -> str:
    return f"the {of}'s limit is {slot_count(limit)}, {used} are in use and this run needs {request.slots}"
