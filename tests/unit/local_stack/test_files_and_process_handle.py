"""File writes are atomic; a process handle does not match a reused pid."""

import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from local_stack import files, process_handle
from local_stack.errors import StackError


def _child() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)


@pytest.fixture
def child():
    process = _child()
    yield process
    process.kill()
    process.wait()


def test_written_file_has_its_mode_and_leaves_no_temporary_file(tmp_path: Path):
    files.write_json(tmp_path / "secret.json", {"a": 1}, mode=0o600)
    assert stat.S_IMODE((tmp_path / "secret.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret.json"]


def test_truncated_file_reads_as_empty(tmp_path: Path):
    (tmp_path / "half.json").write_text('{"a": ')
    assert files.read_json(tmp_path / "half.json") == {}


def test_busy_lock_times_out_with_the_given_message(tmp_path: Path):
    with files.file_lock(tmp_path / "lock"):
        with pytest.raises(StackError, match="somebody else"):
            with files.file_lock(tmp_path / "lock", timeout_seconds=0.0, busy="somebody else"):
                pass


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


def test_pid_file_of_a_dead_process_reads_as_none(tmp_path: Path):
    process = _child()
    found = process_handle.find_process(process.pid)
    process_handle.write_pid_file(tmp_path / "a.json", found, name="a")
    assert process_handle.read_pid_file(tmp_path / "a.json") == found
    process.kill()
    process.wait()
    assert process_handle.read_pid_file(tmp_path / "a.json") is None


def test_terminate_group_kills_processes_that_ignore_sigterm():
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    process.stdout.readline()
    found = process_handle.find_process(process.pid)
    process_handle.terminate_group(found, grace_seconds=0.2)
    assert process.wait(timeout=60) == -signal.SIGKILL
    process.stdout.close()


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (2_500_000, "2.5 MB"), (3 * 10**12, "3.0 TB")]
)
def test_format_bytes(size, text):
    assert files.format_bytes(size) == text
