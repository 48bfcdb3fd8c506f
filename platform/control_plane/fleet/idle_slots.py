"""Slots that remain idle after the queue is scheduled, allocated to engines and evaluators that join running runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from control_plane.fleet.scheduler import Plan, Request, matching_slots


class IdleSlots:
    """The idle slots of one pool's plan."""

    def __init__(self, plan: Plan, limits: Mapping[str, int | None]) -> None:
        self._idle = dict(plan.idle)
        self._used = dict(plan.used)
        self._limits = limits

    def available(self, node: str, request: Request, limit: int) -> tuple[str, ...]:
        """Names of up to `limit` idle slots of the node that match the request, within the team's quota."""
        quota = self._limits.get(request.team)
        headroom = limit if quota is None else max(0, quota - self._used.get(request.team, 0))
        matching = matching_slots(self._idle.get(node, ()), request)
        return tuple(slot.name for slot in matching[: min(limit, headroom)])

    def allocate(self, node: str, team: str, names: Collection[str]) -> None:
        """Mark these slots of the node as used by the team."""
        self._idle[node] = tuple(slot for slot in self._idle[node] if slot.name not in names)
        self._used[team] = self._used.get(team, 0) + len(names)
