"""The open files of one bubblewrap process: inputs, results, control and error messages."""

from __future__ import annotations

import os
import select
from typing import IO

from oolong.sandbox import bubblewrap

MESSAGE_BYTES = 4096


class RunFiles:
    """Memory files for inputs and pipes in both directions."""

    def __init__(
        self,
        *,
        guest_code: bytes,
        seccomp_filter: bytes | None,
        job: bytes,
        stdin: IO[bytes] | None,
        stdout: IO[bytes] | None,
    ) -> None:
        self._open: list[int] = []
        try:
            self._make(guest_code, seccomp_filter, job, stdin, stdout)
        except OSError:
            self.close()
            raise

    def _make(
        self,
        guest_code: bytes,
        seccomp_filter: bytes | None,
        job: bytes,
        stdin: IO[bytes] | None,
        stdout: IO[bytes] | None,
    ) -> None:
        self.status_out, status_in = self._pipe()
        block_out, self.block_in = self._pipe()
        self.results_out, results_in = self._pipe()
        control_out, self.control_in = self._pipe()
        self.messages_out, self.messages_in = self._pipe()
        self.descriptors = bubblewrap.Descriptors(
            guest_code=self._memory(guest_code),
            seccomp=self._memory(seccomp_filter) if seccomp_filter is not None else None,
            status=status_in,
            block=block_out,
            job=self._memory(job),
            results=results_in,
            control=control_out,
            stdin=stdin.fileno() if stdin else -1,
            stdout=stdout.fileno() if stdout else -1,
        )
        self.passed = [fd for fd in vars(self.descriptors).values() if fd is not None and fd >= 0]

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._open += ends
        return ends

    def _memory(self, content: bytes) -> int:
        fd = os.memfd_create("sandbox", os.MFD_CLOEXEC)
        self._open.append(fd)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def close_child_ends(self) -> None:
        """Close the child's ends after the start, so that reads see end-of-file when the child exits."""
        ours = {self.status_out, self.block_in, self.results_out, self.control_in, self.messages_out}
        for fd in self._open:
            if fd not in ours:
                os.close(fd)
        self._open = sorted(ours)

    def close(self) -> None:
        for fd in self._open:
            os.close(fd)
        self._open = []


def readable(fd: int, seconds: float) -> bool:
    """Wait for data (for a pidfd: for exit). Uses poll(), because select() fails above 1,024 descriptors."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def read_available(fd: int) -> str:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, MESSAGE_BYTES).decode(errors="replace").strip()
    except BlockingIOError:
        return ""
