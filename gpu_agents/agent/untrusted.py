"""Files in folders that a job can write: read as what an enemy may have put there.

A job may replace any name in its folders by a link to somewhere else, a pipe that blocks whoever opens it, a device, or
a file without an end. So nothing is opened by a path: each step below a folder of the agent's own is taken without
following links, and only regular files of the folder's owner are read.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class Untrusted(OSError):
    """Something else than a regular file lies there; the message names it."""


@contextmanager
def directory_below(trusted: Path, *names: str) -> Iterator[int]:
    """Descriptor of a folder below one that no job can replace. Raises Untrusted, FileNotFoundError."""
    descriptor = os.open(trusted, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            if name in ("", ".", ".."):
                raise Untrusted(f"{trusted}: {'/'.join(names)} leads out of it")
            try:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                below = os.open(name, flags, dir_fd=descriptor)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise Untrusted(f"{trusted / name} is a link or no folder") from error
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(folder: int, name: str, *, shown: Path) -> BinaryIO:
    """Open a regular file in a folder, to read. `shown` is its path in messages."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Untrusted(f"{shown} is no regular file")
        if found.st_uid != os.fstat(folder).st_uid:
            raise Untrusted(f"{shown} belongs to uid {found.st_uid}, not to its job")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_below(trusted: Path, *names: str, limit: int) -> bytes:
    """The content of a small file. Raises FileNotFoundError, and Untrusted also where it is longer than `limit`."""
    shown = trusted.joinpath(*names)
    with directory_below(trusted, *names[:-1]) as folder:
        try:
            file = open_file(folder, names[-1], shown=shown)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise Untrusted(f"{shown} cannot be read: {error}") from error
        with file:
            content = file.read(limit + 1)
    if len(content) > limit:
        raise Untrusted(f"{shown} is longer than {limit} bytes")
    return content


def remove_tree(folder: Path) -> None:
    """Remove a folder that a job filled: perhaps nested deeper than Python can follow, or closed to its own user.

    Raises OSError where something of it is left all the same.
    """
    try:
        shutil.rmtree(folder)
    except (RecursionError, PermissionError):
        subprocess.run(["/bin/chmod", "-R", "u+rwX", "--", str(folder)], check=False, capture_output=True)
        done = subprocess.run(
            ["/bin/rm", "-rf", "--", str(folder)], check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise OSError(f"{folder} cannot be removed: {done.stderr.strip()[-300:]}") from None
