"""Whether files can be received and given out."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings

from control_plane.assets.storage import store
from control_plane.core.infra.health import NotReady

TRUSTED_SECONDS = 15.0  # a bucket is not asked at each probe of each process

_well: dict[Any, float] = {}  # address -> when it last was, monotonic


def check_store() -> None:
    """A file can be written where uploads are received, and an object where blobs are kept."""
    where = (settings.ENVIRONMENT.storage_url, settings.ENVIRONMENT.data_dir)
    if time.monotonic() - _well.get(where, -TRUSTED_SECONDS) < TRUSTED_SECONDS:
        return
    try:
        probe = store.temporary_path()
        probe.write_bytes(b"ready?")
        probe.unlink()
    except OSError as error:
        raise NotReady(f"the scratch folder cannot be written ({error.strerror})") from error
    try:
        store.check()
    except store.StorageUnavailable as error:
        raise NotReady("cannot be written; the server's log says why") from error
    _well[where] = time.monotonic()
