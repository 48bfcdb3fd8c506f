"""An uploaded loss that tries to get out. It prints what it reached as one line of JSON; {} is a wall without a hole.

`TARGETS` is the JSON file beside it that names what there is to reach: see tests/support/hostile_node.py.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_BIND, MS_REMOUNT = 4096, 32
libc = ctypes.CDLL(None, use_errno=True)


def reaches(act: Callable[[], object]) -> object:
    """What an attack brought; None where it was refused."""
    try:
        return act() or None
    except (OSError, UnicodeDecodeError):
        return None


def read(path: str) -> str | None:
    return Path(path).read_text(errors="replace")[:200]


def write(path: str) -> str:
    with open(path, "ab"):
        return "opened to write"


def replace(path: str) -> str:
    os.rename(path, path + ".gone")
    return "renamed"


def create_in(folder: str) -> str:
    (Path(folder) / "planted").write_text("planted")
    return "created a file"


def link_to(path: str) -> str | None:
    os.link(path, "linked")
    return "linked"


def signalled(pid: int) -> str:
    os.kill(pid, 0)
    return "may signal"


def traced(pid: int) -> str | None:
    if libc.ptrace(PTRACE_ATTACH, pid, 0, 0) != 0:
        return None
    os.waitpid(pid, 0)
    libc.ptrace(PTRACE_DETACH, pid, 0, 0)
    return "traced"


def environments(words: list[str]) -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        content = (
            reaches(lambda name=name: Path(f"/proc/{name}/environ").read_bytes()) if name.isdigit() else None
        )
        found += [word for word in words if isinstance(content, bytes) and word.encode() in content]
    return found


def through_proc(path: str) -> list[str]:
    roots = [f"/proc/{name}/root{path}" for name in os.listdir("/proc") if name.isdigit()]
    return [root for root in roots if reaches(lambda root=root: read(root))]


def remounted(path: str) -> str | None:
    """In a user namespace of its own it has every capability there, and may still not open what was closed."""
    pid = os.fork()
    if pid == 0:
        opened = libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 and (
            libc.mount(None, path.encode(), None, MS_REMOUNT | MS_BIND, None) == 0
            or libc.umount2(path.encode(), 2) == 0
        )
        os._exit(1 if opened else 0)
    return "remounted" if os.waitpid(pid, 0)[1] else None


def became_root() -> str:
    os.setuid(0)
    return "became root"


def attack(targets: dict[str, list[str]], pids: dict[str, int]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, act, values in (
        ("read", read, targets["secret_files"]), ("list", os.listdir, targets["secret_folders"]),
        ("through /proc", through_proc, targets["secret_files"]), ("link", link_to, targets["secret_files"]),
        ("write", write, targets["kept_files"]), ("replace", replace, targets["kept_files"]),
        ("create in", create_in, targets["kept_folders"]), ("remount", remounted, targets["kept_folders"]),
    ):  # fmt: skip
        found |= {f"{name} {value}": reaches(lambda act=act, value=value: act(value)) for value in values}
    for name, pid in pids.items():
        found[f"signal {name}"] = reaches(lambda pid=pid: signalled(pid))
        found[f"trace {name}"] = reaches(lambda pid=pid: traced(pid))
        found[f"memory of {name}"] = reaches(lambda pid=pid: write(f"/proc/{pid}/mem"))
    found["environments"] = environments(targets["secret_words"])
    found["processes"] = [name for name in os.listdir("/proc") if name.isdigit() and int(name) > 64]
    if os.geteuid() != 0:
        found["become root"] = reaches(became_root)
    return {name: value for name, value in found.items() if value}


if __name__ == "__main__":
    wanted = json.loads(Path(__file__).with_name("samples.py").read_text())
    print(json.dumps(attack(wanted["targets"], wanted["pids"])), flush=True)
    Path("closed", "inside").mkdir(parents=True)  # whoever cleans up is kept out, unless it is root
    Path("closed", "inside", "file").touch()
    Path("closed", "inside").chmod(0)
    Path("closed").chmod(0)
    if (
        Path("/proc/1/comm").read_text().strip() == "bwrap"
    ):  # else it would end the machine that runs this test
        os.kill(-1, signal.SIGKILL)
