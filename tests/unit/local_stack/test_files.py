"""File writes are atomic; pid files name only live processes."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from local_stack import files, pid_files
from local_stack.errors import StackError
from oolong.system.process_handle import find_process


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


def test_pid_file_of_a_dead_process_reads_as_none(tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    found = find_process(process.pid)
    pid_files.write_pid_file(tmp_path / "a.json", found, name="a")
    assert pid_files.read_pid_file(tmp_path / "a.json") == found
    process.kill()
    process.wait()
    assert pid_files.read_pid_file(tmp_path / "a.json") is None


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (2_500_000, "2.5 MB"), (3 * 10**12, "3.0 TB")]
)
def test_format_bytes(size, text):
    assert files.format_bytes(size) == text
