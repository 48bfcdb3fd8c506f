"""Run a command on a machine whose kernel refuses user namespaces: `python without_namespaces.py COMMAND…`

A seccomp filter, which every process below inherits, answers clone and unshare with CLONE_NEWUSER as a hardened kernel
or a container does: EPERM. Nothing of the machine changes. Root becomes the user of `OOLONG_TEST_UID` first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

CLONE_NEWUSER = 0x10000000
CLONE, UNSHARE, CLONE3 = 56, 272, 435  # of x86-64
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
AUDIT_ARCH_X86_64 = 0xC000003E
LOAD, EQUALS, HAS_BITS, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data

PROGRAM = (
    (LOAD, 0, 0, ARCHITECTURE),
    (EQUALS, 1, 0, AUDIT_ARCH_X86_64),
    (RETURN, 0, 0, KILL),
    (LOAD, 0, 0, NUMBER),
    (EQUALS, 5, 0, CLONE3),  # its flags lie in memory, which a filter cannot read: callers fall back to clone
    (EQUALS, 1, 0, CLONE),
    (EQUALS, 0, 2, UNSHARE),
    (LOAD, 0, 0, FIRST_ARGUMENT),
    (HAS_BITS, 2, 0, CLONE_NEWUSER),
    (RETURN, 0, 0, ALLOW),
    (RETURN, 0, 0, ERRNO | errno.ENOSYS),
    (RETURN, 0, 0, ERRNO | errno.EPERM),
)


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def refuse_user_namespaces() -> None:
    """For this process and all below it, for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = b"".join(struct.pack("=HBBI", *line) for line in PROGRAM)
    given = Filter(len(PROGRAM), code)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the filter was not taken")


def main(command: list[str]) -> None:
    uid = int(os.environ.get("OOLONG_TEST_UID", "0"))
    if os.geteuid() == 0 and uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    refuse_user_namespaces()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
