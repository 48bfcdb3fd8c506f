"""The uids that attempts run under: each attempt has one of its own, and gives it back when its files are gone.

A claim is a file named by the uid that holds the path of the attempt's directory. Claims lie in one folder of the
machine that outlives a reboot, so that two agents never hand out the same uid, whichever starts first. A claim whose
directory is gone counts for nothing.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLAIMS = Path("/var/lib/oolong-job-uids")
FIRST, LAST = 400_000, 465_535  # above the ranges that distributions give to accounts and to their containers


class NoUid(Exception):
    """No uid of the range is free; the message says how to give another range."""


class UidClaims:
    def __init__(self, first: int = FIRST, last: int = LAST, *, folder: Path = CLAIMS) -> None:
        self.first, self.last = first, last
        self._folder = folder

    def claim(self, holder: Path) -> int:
        """A uid, and gid of the same number, that no account, no process and no other attempt has."""
        with self._locked():
            used, subordinate = _accounts() | _process_uids(), _subordinates()
            for uid in range(self.first, self.last + 1):
                if (
                    uid not in used
                    and not self._is_claimed(uid)
                    and not any(uid in ids for ids in subordinate)
                ):
                    self._write(uid, holder)
                    return uid
        raise NoUid(
            f"every uid from {self.first} to {self.last} belongs to an account, a process or an attempt; "
            "give the agent another range with --job-uids FIRST-LAST"
        )

    def keep(self, uid: int, holder: Path) -> None:
        """Claim what an attempt of this node has, in case its claim was deleted. Raise NoUid if another one has it."""
        with self._locked():
            if self._is_claimed(uid) and self._holder(uid) != str(holder):
                raise NoUid(
                    f"{holder} belongs to uid {uid}, which {self._holder(uid)} has claimed; remove one of the two "
                    "directories and restart the agent"
                )
            self._write(uid, holder)

    def release(self, uid: int, holder: Path) -> None:
        with self._locked():
            if self._holder(uid) == str(holder):
                (self._folder / str(uid)).unlink()

    def _is_claimed(self, uid: int) -> bool:
        holder = self._holder(uid)
        return holder is not None and os.path.lexists(holder)

    def _holder(self, uid: int) -> str | None:
        try:
            return (self._folder / str(uid)).read_text()
        except FileNotFoundError:
            return None

    def _write(self, uid: int, holder: Path) -> None:
        (self._folder / str(uid)).write_text(str(holder))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _accounts() -> set[int]:
    return {account.pw_uid for account in pwd.getpwall()} | {group.gr_gid for group in grp.getgrall()}


def _process_uids() -> set[int]:
    uids: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                uids.add(os.stat(f"/proc/{name}").st_uid)
            except FileNotFoundError:
                continue  # it has ended
    return uids


def _subordinates() -> list[range]:
    """What /etc/subuid and /etc/subgid give to the containers of users."""
    ranges = []
    for file in (Path("/etc/subuid"), Path("/etc/subgid")):
        for line in file.read_text().splitlines() if file.exists() else ():
            parts = line.split(":")
            if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
                ranges.append(range(int(parts[1]), int(parts[1]) + int(parts[2])))
    return ranges
