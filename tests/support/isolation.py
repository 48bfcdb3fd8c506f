"""Whether this machine can isolate code at all, asked of the kernel and not of our sandbox.

A test that needs a sandbox is skipped only where the kernel refuses what any sandbox needs, for a reason that
tests/allowed_skips.txt has. Where the kernel allows it and there is no sandbox all the same, that is a fault of ours:
the test fails.
"""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

from oolong.sandbox import Capabilities, Findings, Sandbox

REASON = "this machine cannot isolate code of users"
# A user namespace, and in it a mount of one's own: what bubblewrap does first. Root asks as a user, whom it
# becomes for a sandbox as well.
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


@functools.cache
def kernel_refusal() -> str:
    """What the kernel refuses a user of this machine; "" when it allows a sandbox."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def require_isolation(capabilities: Capabilities) -> None:
    """Skip the test where the kernel isolates nobody; fail it where only our sandbox does not."""
    if capabilities.runs_code:
        return
    said = f"{capabilities.message}; {capabilities.command}"
    if refusal := kernel_refusal():
        pytest.skip(f"{REASON}: {refusal} ({said})")
    pytest.fail(f"the kernel isolates, and there is no sandbox: {said}")


def sandbox_or_skip(findings: Findings) -> Sandbox:
    require_isolation(findings.capabilities)
    return findings.require()
