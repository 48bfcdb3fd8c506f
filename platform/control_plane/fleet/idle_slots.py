"""Slots that the queue leaves idle, while they are given away one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from control_plane.fleet.scheduler import Plan, Request, suiting


class Leftover:
    """Of one pool's plan; nothing of it is kept for anybody."""

    def __init__(self, decided: Plan, limits: Mapping[str, int | None]) -> None:
        self._idle = dict(decided.idle)
        self._used = dict(decided.used)
        self._limits = limits

    def slots(self, node: str, request: Request, most: int) -> tuple[str, ...]:
        """Idle slots of a node that suit the request, as many as its team may have and `most` at most."""
        limit = self._limits.get(request.team)
        room = most if limit is None else max(0, limit - self._used.get(request.team, 0))
        suited = suiting(self._idle.get(node, ()), request)
        return tuple(slot.name for slot in suited[: min(most, room)])

    def take(self, node: str, team: str, names: Collection[str]) -> None:
        """These slots are the team's now."""
        self._idle[node] = tuple(slot for slot in self._idle[node] if slot.name not in names)
        self._used[team] = self._used.get(team, 0) + len(names)
