"""Slots that the queue leaves idle, while they are given away one by one."""

from __future__ import annotations

from collections.abc import Mapping

from control_plane.fleet.scheduler import Plan


class Leftover:
    """Of one plan; nothing of it is kept for anybody."""

    def __init__(self, decided: Plan, limits: Mapping[str, int | None]) -> None:
        self._idle = dict(decided.idle)
        self._used = dict(decided.used)
        self._limits = limits

    def slots(self, node: str, team: str, most: int) -> tuple[str, ...]:
        """Idle slots of a node, as many as the team may have and `most` at most."""
        limit = self._limits.get(team)
        room = most if limit is None else max(0, limit - self._used.get(team, 0))
        return self._idle.get(node, ())[: min(most, room)]

    def take(self, node: str, team: str, count: int) -> None:
        """The first `count` of them are somebody's now."""
        self._idle[node] = self._idle[node][count:]
        self._used[team] = self._used.get(team, 0) + count
