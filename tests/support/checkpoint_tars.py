"""The tar of a checkpoint as a node uploads it: a manifest with each file's sha256, then the files."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping


def pack_checkpoint(files: Mapping[str, bytes]) -> bytes:
    listed = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in {"MANIFEST.json": json.dumps({"files": listed}).encode(), **files}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
