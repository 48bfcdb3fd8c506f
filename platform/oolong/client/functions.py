"""A Python file on its way up and down."""

from __future__ import annotations

import hashlib
from pathlib import Path

from oolong.client.errors import OolongError
from oolong.client.models import FunctionVersion


def source_text(path: Path) -> str:
    """The file as text, its line ends kept: what is hashed there is what lies here."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise OolongError(f"{path} is not UTF-8: {error}") from error


def verified(source: bytes, version: FunctionVersion) -> bytes:
    found = hashlib.sha256(source).hexdigest()
    if found != version.sha256:
        raise OolongError(
            f"{version.ref}: what arrived has sha256 {found}, the version has {version.sha256}; try again"
        )
    return source
