"""How far an attempt has come, and for how long it has not moved: what the boot checklist and the alerts read."""

from __future__ import annotations

from gpu_agents.rollout.controller.controller import Controller
from oolong.contracts.rollout import BOOT_MILESTONES


class AttemptProgress:
    """Looks at the controller about once a second. Times are unix seconds."""

    def __init__(self) -> None:
        self.milestones: dict[str, float] = {}
        self._since: dict[str, float] = {}

    def look(self, controller: Controller, *, now: float) -> None:
        """Note the milestones that were reached since the last look, and which standstills go on."""
        for name in _reached(controller):
            self.milestones.setdefault(name, now)
        standing = _standing(controller)
        for name in standing:
            self._since.setdefault(name, now)
        self._since = {name: since for name, since in self._since.items() if name in standing}

    def standstill_values(self, *, now: float) -> dict[str, float]:
        """Seconds that each way of standing still has lasted; 0 while it does not."""
        since = self._since
        return {
            "gate/standstill_seconds": now - since.get("gate", now),
            "buffer/untaken_seconds": now - since.get("buffer", now),
            "sync/unloaded_seconds": now - since.get("weights", now),
        }


def _reached(controller: Controller) -> list[str]:
    counts = controller.counts
    first_step = counts.versions_announced > 1
    first_batch = first_step or bool(controller.taken)
    reached = {
        "engine_serves": counts.acks > 0,
        "trainer_ready": controller.versions.newest is not None,
        "first_rollout": first_batch or bool(controller.running),
        "first_group": first_batch or counts.finished_groups > 0,
        "first_batch": first_batch,
        "first_step": first_step,
    }
    return [name for name in BOOT_MILESTONES if reached[name]]


def _standing(controller: Controller) -> set[str]:
    """Which standstills hold at this moment."""
    if controller.ending or controller.versions.newest is None:
        return set()
    standing = set()
    enough = len(controller.buffered) >= controller.rules.gate.groups_per_step
    if not controller.taken:
        if enough:
            standing.add("buffer")
        elif controller.nothing_can_change:
            standing.add("gate")
    engines = controller.engines.all()
    if controller.counts.acks and not any(
        engine.version == controller.versions.number and not engine.stale for engine in engines
    ):
        standing.add("weights")
    return standing
