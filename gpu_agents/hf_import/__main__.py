"""`python -m gpu_agents.hf_import FOLDER [HOST…]`: downloads what order.json names and writes
result.json last.

HOST… are hosts that the hub may redirect to in addition to itself and public addresses.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec

from gpu_agents.hf_import.downloader import HubDownloader
from gpu_agents.hf_import.file_selection import ImportRejected
from oolong.contracts.model_imports import (
    ORDER_FILE,
    PROGRESS_FILE,
    RESULT_FILE,
    ImportOrder,
    ImportProgress,
    ImportResult,
)
from oolong.system.safe_http import AddressBlocked, CheckedTransport, EndpointPolicy

PROGRESS_SECONDS = 2.0


def main() -> int:
    folder = Path(sys.argv[1])
    order_file = folder / ORDER_FILE
    order = msgspec.json.decode(order_file.read_bytes(), type=ImportOrder)
    order_file.unlink()  # it may contain a token
    with client(order.endpoint, sys.argv[2:]) as http:
        result = fetch(order, folder, http)
    _write(folder / RESULT_FILE, result)
    return 0


def client(endpoint: str, hosts: Sequence[str]) -> httpx.Client:
    how_to_allow = "; to allow it, start the node's agent with --hub-host {host}"
    policy = EndpointPolicy(endpoint, frozenset(hosts), how_to_allow)
    return httpx.Client(
        transport=CheckedTransport(policy, through_proxy=True),
        follow_redirects=True,
        max_redirects=5,
        timeout=httpx.Timeout(60.0, connect=15.0),
    )


def fetch(order: ImportOrder, folder: Path, http: httpx.Client) -> ImportResult:
    model = folder / "model"
    model.mkdir(exist_ok=True)
    reported_at = [0.0]

    def progress(done: int, total: int) -> None:
        if time.monotonic() - reported_at[0] > PROGRESS_SECONDS or done == total:
            reported_at[0] = time.monotonic()
            _write(folder / PROGRESS_FILE, ImportProgress(bytes_done=done, bytes_total=total))

    hub = HubDownloader(http, endpoint=order.endpoint, model=order.model, token=order.token)
    try:
        commit = hub.fetch(order.revision, model, progress)
    except (ImportRejected, AddressBlocked) as refusal:
        return ImportResult(error=str(refusal))
    for part in model.glob("*.part"):
        part.unlink()
    return ImportResult(commit=commit)


def _write(path: Path, document: ImportProgress | ImportResult) -> None:
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_bytes(msgspec.json.encode(document))
    unfinished.rename(path)


if __name__ == "__main__":
    sys.exit(main())
