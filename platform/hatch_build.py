"""Build hook of the package: generate the synchronous client before it is packed or installed as editable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SyncClientHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        sys.path.insert(0, str(root / "platform"))
        from local_stack import sync_client

        if not sync_client.is_current(root):
            sync_client.generate(root)
