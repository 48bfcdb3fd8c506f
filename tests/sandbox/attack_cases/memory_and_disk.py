"""Attacks on memory, disk and output."""

from __future__ import annotations

from tests.sandbox.attack_cases.attack import OVER_TIME, Attack

ATTACKS: tuple[Attack, ...] = (
    Attack(
        name="memory_bomb",
        needs="memory_bound",
        source="kept = []\nwhile True: kept.append(b'x' * 10_000_000)",
        ends=("memory_limit",),
    ),
    Attack(
        name="memory_in_many_children",
        needs="memory_bound",
        source="""
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = b"x" * (60 * 1024**2)
        time.sleep(50)
        os._exit(0)
time.sleep(50)
""",
        ends=("memory_limit",),
    ),
    Attack(
        # What lies in them is no process's page.
        name="memory_in_the_buffers_of_sockets",
        needs="memory_bound",
        source="""
import os, socket, time
def fill():
    pairs = []
    try:
        while True:
            pairs.append(socket.socketpair())
            for end in pairs[-1]:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10**8)
                end.setblocking(False)
                try:
                    while True: end.send(b"x" * 4096)
                except BlockingIOError: pass
    except OSError:
        time.sleep(600)
for _ in range(14):
    if os.fork() == 0:
        fill()
time.sleep(600)
""",
        ends=("memory_limit",),
    ),
    Attack(
        name="sockets_in_flight",
        needs="memory_bound",
        source="""
import socket, time
carrier, other = socket.socketpair()
sent = 0
try:
    while sent < 100_000:
        one, two = socket.socketpair()
        one.setblocking(False)
        try:
            while True: one.send(b"x" * 4096)
        except BlockingIOError: pass
        socket.send_fds(carrier, [b"x"], [two.fileno()])
        one.close(); two.close()
        sent += 1
except OSError:
    pass
report(sent < 2000)
""",
        ends=("ok", "memory_limit", *OVER_TIME),
        reports=True,
        core=True,
    ),
    Attack(
        name="larger_pipes",
        needs="seccomp",
        source="""
import fcntl, os
out, into = os.pipe()
try:
    report(fcntl.fcntl(out, 1031, 1024**2))
except PermissionError:
    report([])
""",
        reports=[],
    ),
    Attack(
        name="fills_the_scratch_folder",
        needs="user_namespace",
        source="""
total = 0
try:
    for number in range(100):
        with open(f"/tmp/{number}", "wb") as file:
            for _ in range(8):
                total += file.write(b"x" * 1024**2)
                file.flush()
except OSError:
    pass
report(total <= 33 * 1024**2)
""",
        reports=True,
    ),
    Attack(
        name="writes_outside_the_scratch_folder",
        needs="user_namespace",
        source="""
import os
got = []
for folder in ("/", "/dev", "/usr", "/usr/lib", "/python", "/python/lib", "/run", "/etc", "/guest.pyc"):
    for act in (lambda: open(folder + "/planted", "w"), lambda: os.mkdir(folder + "/made"),
                lambda: open(folder, "r+b")):
        try:
            act()
            got.append(folder)
        except OSError:
            pass
report(got)
""",
        reports=[],
    ),
    Attack(
        name="writes_one_huge_file",
        needs="user_namespace",
        source="""
got = 0
try:
    with open("/tmp/huge", "wb") as file:
        file.truncate(10**12)
        got = 1
except OSError:
    pass
report(got)
""",
        reports=0,
    ),
    Attack(
        name="files_without_number",
        needs="memory_bound",
        source="n = 0\nwhile True:\n    n += 1\n    open(f'/tmp/{n}', 'w').close()",
        ends=("output_limit", "memory_limit", *OVER_TIME),
    ),
    Attack(
        name="folders_that_cannot_be_emptied",
        needs="user_namespace",
        source="""
import os
os.makedirs("/tmp/a/b")
os.chmod("/tmp/a", 0)
for _ in range(1500):
    try:
        os.mkdir("/tmp/d"); os.chdir("/tmp/d")
    except OSError:
        os.mkdir("d"); os.chdir("d")
""",
        ends=("ok", "failed"),
    ),
    Attack(name="floods_standard_output", needs="user_namespace", source="while True: print('x' * 1000)",
           ends=("output_limit",)),
    Attack(name="floods_standard_error", needs="user_namespace",
           source="import sys\nwhile True: print('x' * 1000, file=sys.stderr)",
           ends=("output_limit",)),
    Attack(name="reports_without_end", needs="user_namespace", source="while True: report('x' * 1000)",
           ends=("output_limit",)),
)  # fmt: skip
