"""A process handle does not match a reused pid."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from oolong.system import process_handle


def _child() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)


@pytest.fixture
def child():
    process = _child()
    yield process
    process.kill()
    process.wait()


def test_handle_of_a_live_process_is_alive(child):
    found = process_handle.find_process(child.pid)
    assert found is not None
    assert found.is_alive()


def test_handle_does_not_match_a_reused_pid(child):
    found = process_handle.find_process(child.pid)
    other = replace(found, start_ticks=found.start_ticks - 1)
    assert not other.is_alive()
    other.signal(signal.SIGKILL)  # must signal no process
    process_handle.terminate_group(other, grace_seconds=0.0)
    assert found.is_alive()


def test_zombie_is_not_alive():
    process = _child()
    found = process_handle.find_process(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert process_handle.wait_exited([found], timeout_seconds=60.0) == []
    process.wait()


def test_terminate_group_kills_processes_that_ignore_sigterm():
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    process.stdout.readline()
    found = process_handle.find_process(process.pid)
    process_handle.terminate_group(found, grace_seconds=0.2)
    assert process.wait(timeout=60) == -signal.SIGKILL
    process.stdout.close()


def test_descendants_are_listed_parents_before_children():
    code = (
        "import subprocess, sys; subprocess.Popen(['sleep', '600']); print(1, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    found = process_handle.descendants(os.getpid())
    (below,) = process_handle.children(process.pid)
    assert found.index(process.pid) < found.index(below)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
