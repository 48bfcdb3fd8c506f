"""Pid files that identify a process even if its pid is reused, for example after a reboot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from local_stack.files import read_json, write_json
from oolong.system.process_handle import ProcessHandle


def write_pid_file(path: Path, handle: ProcessHandle, **more: Any) -> None:
    record = {"pid": handle.pid, "start_ticks": handle.start_ticks, "boot_id": handle.boot_id, **more}
    write_json(path, record)


def read_pid_file(path: Path) -> ProcessHandle | None:
    """Return the process of a pid file if it is alive."""
    record = read_json(path)
    try:
        handle = ProcessHandle(
            pid=int(record["pid"]), start_ticks=int(record["start_ticks"]), boot_id=str(record["boot_id"])
        )
    except (KeyError, ValueError):
        return None
    return handle if handle.is_alive() else None
