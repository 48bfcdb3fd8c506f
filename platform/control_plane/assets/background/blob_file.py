"""A presigned blob as a local file, for the processes that read what users uploaded. Needs no settings."""

from __future__ import annotations

import shutil
import urllib.request
from pathlib import Path

FETCH_SECONDS = 60
CHUNK = 1024 * 1024


def local_file(location: str, target: Path) -> Path:
    """The file itself: where it lies, or fetched to `target` by the signed URL of a bucket."""
    if not location.startswith(("http://", "https://")):
        return Path(location)
    with urllib.request.urlopen(location, timeout=FETCH_SECONDS) as body, target.open("wb") as file:
        shutil.copyfileobj(body, file, CHUNK)
    return target
