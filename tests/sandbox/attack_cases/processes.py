"""Attacks by processes: too many, too long, or hard to kill."""

from __future__ import annotations

from tests.sandbox.attack_cases.attack import BOUNDED, OVER_TIME, Attack

ATTACKS: tuple[Attack, ...] = (
    Attack(
        name="fork_bomb",
        needs="process_bound",
        source="import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        ends=BOUNDED,
        core=True,
    ),
    Attack(
        name="daemons_that_leave_their_session",
        needs="user_namespace",
        source="""
import os, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(20):
                try: os.close(fd)
                except OSError: pass
            time.sleep(600)
        os._exit(0)
""",
        ends=("ok",),
    ),
    Attack(
        name="a_grandchild_holds_its_output_and_writes_on",
        needs="user_namespace",
        source="""
import os, time
if os.fork() == 0:
    os.setsid()
    while True:
        os.write(1, b"x")
        time.sleep(0.01)
""",
        ends=("ok",),
    ),
    Attack(
        name="forks_on_while_it_is_killed",
        needs="process_bound",
        source="""
import os
def fork():
    try:
        return os.fork()
    except OSError:  # the bound: its own children may reach it first
        return None
for _ in range(4):
    if fork() == 0:
        while True:
            if fork():
                os._exit(0)
""",
        ends=("ok",),
    ),
    Attack(
        name="many_processes_that_each_stay_below_the_bound_of_time",
        needs="process_bound",
        source="""
import os, time
while True:
    if os.fork() == 0:
        try: os.setsid()
        except OSError: pass
        while time.process_time() < 0.4: pass
        os._exit(0)
    if payload is None and os.times().elapsed % 1 > 0.5:
        try: os.waitpid(-1, os.WNOHANG)
        except ChildProcessError: pass
""",
        ends=(*OVER_TIME, "failed", "process_limit"),
        core=True,
    ),
    Attack(
        name="thread_bomb",
        needs="process_bound",
        source="import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
        ends=BOUNDED,
    ),
    Attack(
        name="ignores_every_signal",
        needs="user_namespace",
        source="""
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
        ends=OVER_TIME,
    ),
    Attack(
        name="closes_its_files_and_sleeps",
        needs="user_namespace",
        source="import os, time\nos.closerange(0, 64)\ntime.sleep(600)",
        ends=OVER_TIME,
    ),
    Attack(
        name="stops_itself",
        needs="user_namespace",
        source="import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        ends=OVER_TIME,
    ),
    Attack(name="a_number_too_large", needs="user_namespace", source="9**9**9", ends=(*OVER_TIME, "memory_limit")),
    Attack(
        name="catastrophic_pattern",
        needs="user_namespace",
        source="import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')",
        ends=OVER_TIME,
    ),
    Attack(
        name="recursion_without_end",
        needs="user_namespace",
        source="import sys\nsys.setrecursionlimit(10**9)\nf = lambda x: f(x) + 1\nf(0)",
        ends=("killed", "failed", "memory_limit"),
    ),
    Attack(
        name="kills_all_that_it_can_see",
        needs="user_namespace",
        source="""
import os, signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL, signal.SIGHUP):
    os.kill(1, number)
try: os.kill(-1, signal.SIGKILL)
except OSError: pass
for pid in range(2, 300):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
report("alive")
""",
        reports="alive",
    ),
)  # fmt: skip
