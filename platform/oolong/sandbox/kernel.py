"""Checks, in a separate process, whether the kernel allows user namespaces and mounts in them."""

from __future__ import annotations

import platform
import subprocess
import sys

WITHOUT_SANDBOX = (
    "runs with the text rewards (exact_match, math, format, length) work; refused are the code reward, uploaded "
    "rewards and workflows, Python tools, and token statistics of datasets"
)
# A user namespace, and in it a mount of one's own: what bubblewrap does first. Root asks as a user, whom it becomes
# for a sandbox as well.
_ASK = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(39_999)
    os.setuid(39_999)
    libc.prctl(4, 1, 0, 0, 0)  # dumpable again, or /proc/self is root's
uid = os.geteuid()
if libc.unshare(0x10000000) != 0:
    raise SystemExit("user namespaces are refused: " + os.strerror(ctypes.get_errno()))
open("/proc/self/uid_map", "w").write(f"0 {uid} 1")
if libc.unshare(0x20000) != 0 or libc.mount(b"none", b"/", None, 0x84000, None) != 0:
    raise SystemExit("mounts in a user namespace are refused: " + os.strerror(ctypes.get_errno()))
"""


def namespace_error() -> str:
    """The error of the kernel, or "" if it allows a sandbox or this is not Linux."""
    if platform.system() != "Linux":
        return ""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
