from __future__ import annotations

import shutil
from datetime import datetime

from control_plane.catalog import store


def drop_stale_files(*, before: datetime) -> int:
    """Remove temporary files and unfinished uploads that nobody has touched since `before`."""
    dropped = 0
    for folder in store.scratch_folders():
        if not folder.is_dir():
            continue
        for entry in folder.iterdir():
            if entry.stat().st_mtime >= before.timestamp():
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)
            dropped += 1
    return dropped
