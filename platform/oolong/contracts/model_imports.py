"""A model that a node fetches from a hub: what the node receives, and what its importer leaves."""

from __future__ import annotations

import msgspec

ORDER_FILE, PROGRESS_FILE, RESULT_FILE = "order.json", "progress.json", "result.json"


class ImportOrder(msgspec.Struct, frozen=True, kw_only=True):
    """POST /api/v1/agent/imports/{import_id}/begin: the import is this node's. Asked again, the same order."""

    import_id: str
    endpoint: str  # of the hub, as https://hub.example.org
    model: str  # owner/name
    revision: str
    token: str = ""  # of the project secret that the import names


class ImportProgress(msgspec.Struct, frozen=True, kw_only=True):
    """POST …/progress; it also says that the node still works on it."""

    bytes_done: int = 0
    bytes_total: int = 0


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """POST …/uploads with the commit, or …/failed with the error."""

    commit: str = ""
    error: str = ""
