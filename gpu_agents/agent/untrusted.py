"""Safe reads in directories that a job can write.

A job may replace any of its files by a link, a pipe that blocks the reader, a device, or an endless file. So each path
component is opened without following links, and only regular files of the directory's owner are read.
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
    """The path is not a regular file or directory of its job."""


@contextmanager
def directory_below(trusted: Path, *names: str) -> Iterator[int]:
    """Open a directory below a trusted one. Raises Untrusted, FileNotFoundError."""
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
                raise Untrusted(f"{trusted / name} is a link or not a directory") from error
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(folder: int, name: str, *, shown: Path) -> BinaryIO:
    """Open a regular file for reading. `shown` is its path in messages."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Untrusted(f"{shown} is not a regular file")
        if found.st_uid != os.fstat(folder).st_uid:
            raise Untrusted(f"{shown} belongs to uid {found.st_uid}, not to its job")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_below(trusted: Path, *names: str, limit: int) -> bytes:
    """Read a small file. Raises FileNotFoundError, and Untrusted also if it is longer than `limit`."""
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
    """Remove a job's directory, even if it is nested deeper than Python's recursion limit or lacks permissions.

    Raises OSError if part of it remains.
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
