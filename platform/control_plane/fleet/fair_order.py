"""Sorts the queue of one pool: a pure function.

1. Runs that fit their team's nominal quota, because these slots are theirs. Playgrounds and reward tests come last.
2. The higher priority. A priority above DEFAULT_PRIORITY only moves a run ahead of other runs of its team, because the
   team's own operators grant it.
3. The team that borrows fewer slots: its dominant share of what the pool can lend. A team's runs that come earlier in
   the order count as if they had started.
4. The team with fewer slot-hours, which decay with a half-life.
5. The older run.

Within a team, runs that fit their project's nominal quota come first, because the team's other projects only borrow
these slots.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from control_plane.fleet.snapshot import ProjectQuota, Request, TeamQuota

DEFAULT_PRIORITY = 500  # operators may raise a run above it, ahead of other runs of its team


def sort_queue(
    queue: Sequence[Request],
    *,
    quotas: Mapping[str, TeamQuota] | None = None,
    held: Mapping[str, int] | None = None,
    slot_hours: Mapping[str, float] | None = None,
    stuck: Collection[str] = (),
    project_quotas: Mapping[str, ProjectQuota] | None = None,
    project_held: Mapping[str, int] | None = None,
) -> list[Request]:
    """`held` are the slots of each team that it does not hold as a borrower who leaves at once, `project_held` the same
    by project. Requests in `stuck` do not count as slots of their team, because they cannot start now."""
    quotas, slot_hours, held = quotas or {}, slot_hours or {}, dict(held or {})
    # Each team keeps the positions that it has without priorities above the default, and sorts its own runs within
    # them.
    positions: dict[str, list[Request]] = {}
    for request in sorted(
        queue, key=lambda one: (min(one.priority, DEFAULT_PRIORITY), -one.submitted_at.timestamp(), one.id)
    ):
        positions.setdefault(request.team, []).append(request)
    own: dict[str, list[Request]] = {}
    for request in reversed(_sort_within_teams(queue, project_quotas or {}, dict(project_held or {}), stuck)):
        own.setdefault(request.team, []).append(request)

    def key(team: str) -> tuple[Any, ...]:
        position, request = positions[team][-1], own[team][-1]
        after, nominal = held.get(team, 0) + request.slots, quotas.get(team, TeamQuota()).nominal
        tier = 2 if request.preemptible else 0 if after <= nominal else 1
        borrowed = max(0, held.get(team, 0) - nominal)
        return (
            tier, -min(position.priority, DEFAULT_PRIORITY), borrowed, slot_hours.get(team, 0.0),
            position.submitted_at, request.id, team,
        )  # fmt: skip

    order = []
    heads = [key(team) for team in own]
    heapq.heapify(heads)
    while heads:
        team = heapq.heappop(heads)[-1]
        positions[team].pop()
        request = own[team].pop()
        order.append(request)
        if request.id not in stuck:
            held[team] = held.get(team, 0) + request.slots
        if own[team]:
            heapq.heappush(heads, key(team))
    return order


def _sort_within_teams(
    queue: Sequence[Request],
    quotas: Mapping[str, ProjectQuota],
    held: dict[str, int],
    stuck: Collection[str],
) -> list[Request]:
    """First the runs that fit their project's nominal quota, then the others, each by priority and age."""
    own, others = [], []
    for request in sorted(queue, key=lambda one: (-one.priority, one.submitted_at, one.id)):
        after, quota = held.get(request.project, 0) + request.slots, quotas.get(request.project)
        if quota is None or request.preemptible or after > quota.nominal:
            others.append(request)
            continue
        own.append(request)
        if request.id not in stuck:
            held[request.project] = after
    return own + others
