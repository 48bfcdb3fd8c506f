"""What may change while a run is active. The resolved spec never does; this stands beside it.

The control plane folds every change of a run into one `RuntimeOverrides`, the desired state carries it to the node, the
agent writes it down as `live.json` in the attempt's directory, and the jobs look there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

LIVE_FILE = "live.json"
# Pointer in the spec → field of RuntimeOverrides that jobs apply between two steps.
CHANGEABLE = {
    "/staleness/max": "max_staleness",
    "/rollout/max_concurrent_groups": "max_concurrent_groups",
    "/trainer/learning_rate": "learning_rate",
    "/rollout/engines": "engines",
}


class RuntimeOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """None: as in the spec. The two counts are requests so far: one more than before means, do it once."""

    revision: int = 0  # of the run's changes; 0: none was ever made
    max_staleness: int | None = None
    max_concurrent_groups: int | None = None
    learning_rate: float | None = None
    engines: int | None = (
        None  # how many the run wants; the control plane leases slots and adds or ends their jobs
    )
    checkpoint_requests: int = 0
    evaluation_requests: int = 0


class LiveFile:
    """The settings as a job last saw them. Requests from before the job began are taken as granted."""

    def __init__(self, attempt_directory: str | Path) -> None:
        self._path = Path(attempt_directory) / LIVE_FILE
        self.settings = self._read()
        self.before = self.settings

    def poll(self) -> bool:
        """Look again; True when something changed since the last look. `before` is what was known until now."""
        found = self._read()
        if found.revision == self.settings.revision:
            return False
        self.before, self.settings = self.settings, found
        return True

    def _read(self) -> RuntimeOverrides:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=RuntimeOverrides)
        except FileNotFoundError:
            return RuntimeOverrides()
