"""Files are whole or absent; a process is more than its number."""

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


def test_a_written_file_has_its_mode_and_leaves_no_temporary_name(tmp_path: Path):
    files.write_json(tmp_path / "secret.json", {"a": 1}, mode=0o600)
    assert stat.S_IMODE((tmp_path / "secret.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret.json"]


def test_a_file_cut_short_reads_as_empty(tmp_path: Path):
    (tmp_path / "half.json").write_text('{"a": ')
    assert files.read_json(tmp_path / "half.json") == {}


def test_a_lock_held_by_another_gives_up_with_the_given_words(tmp_path: Path):
    with files.file_lock(tmp_path / "lock"):
        with pytest.raises(StackError, match="somebody else"):
            with files.file_lock(tmp_path / "lock", timeout_seconds=0.0, busy="somebody else"):
                pass


def test_a_live_process_is_itself(child):
    found = process_handle.find_process(child.pid)
    assert found is not None
    assert found.is_alive()


def test_a_process_with_the_same_pid_and_another_start_is_somebody_else(child):
    found = process_handle.find_process(child.pid)
    other = replace(found, start_ticks=found.start_ticks - 1)
    assert not other.is_alive()
    other.signal(signal.SIGKILL)  # must hit nobody
    process_handle.terminate_group(other, grace_seconds=0.0)
    assert found.is_alive()


def test_a_zombie_is_not_alive():
    process = _child()
    found = process_handle.find_process(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert process_handle.wait_exited([found], timeout_seconds=60.0) == []
    process.wait()


def test_a_pid_file_of_a_dead_process_names_nobody(tmp_path: Path):
    process = _child()
    found = process_handle.find_process(process.pid)
    process_handle.write_pid_file(tmp_path / "a.json", found, name="a")
    assert process_handle.read_pid_file(tmp_path / "a.json") == found
    process.kill()
    process.wait()
    assert process_handle.read_pid_file(tmp_path / "a.json") is None


def test_ending_a_group_kills_what_ignores_the_request():
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
def test_sizes_for_people(size, text):
    assert files.format_bytes(size) == text
