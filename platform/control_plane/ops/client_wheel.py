"""The wheel of the SDK and the `oolong` command, built from this very code: what a pipeline installs.

The name `oolong` belongs to somebody else on the public index, so the control plane serves its own, with its hash.
"""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from control_plane.core.api.errors import Problem

log = logging.getLogger(__name__)
BUILD_SECONDS = 120
_lock = threading.Lock()
_built: Wheel | None = None


@dataclass(frozen=True)
class Wheel:
    filename: str
    data: bytes
    sha256: str


def client_wheel() -> Wheel:
    """Built once per process, at the first request. The build is reproducible: every process serves the same bytes."""
    global _built
    with _lock:
        if _built is None:
            _built = build(settings.BASE_DIR)
        return _built


def build(root: Path) -> Wheel:
    """Raises Problem 503 where hatchling cannot build; the log has its output."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
            cwd=root, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False,
        )  # fmt: skip
        files = list(Path(folder).glob("*.whl"))
        if done.returncode != 0 or len(files) != 1:
            log.error("the client's wheel was not built: %s%s", done.stdout, done.stderr)
            raise Problem(
                503, "no_client_package", "the client's wheel cannot be built; see the server's log"
            )
        data = files[0].read_bytes()
        return Wheel(files[0].name, data, hashlib.sha256(data).hexdigest())
