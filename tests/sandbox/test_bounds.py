"""What a program gets and what comes back: results, bounds without control groups, refusals."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from oolong.sandbox import (
    Limits,
    Program,
    Sandbox,
    Status,
    Test,
    probe,
    resource_usage,
    seccomp,
    supervisor,
)
from oolong.sandbox import sandbox as sandbox_module
from oolong.sandbox.capabilities import (
    ENTER_WITHOUT_CHROOT,
    Capabilities,
    KernelSettings,
    SandboxUnsupported,
    command_for_user_namespaces,
)
from oolong.sandbox.isolation import IsolationConfig
from oolong.sandbox.probe import probe_sandbox
from tests.sandbox.conftest import LIMITS, PATIENT


def run(sandbox: Sandbox, source: str, *tests: Test, limits: Limits = PATIENT, **more: object):
    program = Program(source=source, tests=tests or (Test(),), **more)
    return sandbox.run(program, limits)


def test_a_program_reads_its_input_and_reports_one_value(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "print(input()[::-1]); report({'n': payload + common})",
        Test(payload=1, stdin=b"abc\n"),
        common=41,
    )
    assert outcome.only.status is Status.OK
    assert (outcome.only.stdout, outcome.only.value) == (b"cba\n", b'{"n": 42}')


def test_dev_stdin_reads_the_input(sandbox: Sandbox) -> None:
    assert run(sandbox, "print(open('/dev/stdin').read())", Test(stdin=b"x")).only.stdout == b"x\n"


def test_an_exception_is_the_programs_own_failure(sandbox: Sandbox) -> None:
    test = run(sandbox, "def f():\n    return 1 / 0\nf()").only
    assert (test.status, test.exit_code) == (Status.FAILED, 1)
    assert b'File "program.py", line 2, in f' in test.stderr and b"guest.py" not in test.stderr


def test_threads_and_exit_functions_finish_before_exit(sandbox: Sandbox) -> None:
    source = """
import atexit, threading, time
atexit.register(print, "last")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
print("first")
"""
    assert run(sandbox, source).only.stdout == b"first\nthread\nlast\n"


def test_tests_of_one_program_share_a_sandbox_and_nothing_else(sandbox: Sandbox) -> None:
    source = "import os\nreport([payload, os.listdir('/tmp')])\nopen('/tmp/mine', 'w').close()"
    outcome = run(sandbox, source, *(Test(payload=number) for number in range(12)))
    assert [test.value for test in outcome.tests] == [b'[%d, [".stdin"]]' % number for number in range(12)]
    assert outcome.sandboxes == 1


def test_timeout_of_one_test_does_not_affect_the_others(sandbox: Sandbox) -> None:
    source = "while payload: pass"
    limits = replace(PATIENT, cpu_seconds=1)
    outcome = run(sandbox, source, Test(payload=0), Test(payload=1), Test(payload=0), limits=limits)
    assert [test.status for test in outcome.tests][::2] == [Status.OK, Status.OK]
    assert outcome.tests[1].status in (
        Status.CPU_LIMIT,
        Status.WALL_LIMIT,
    )  # whichever a busy machine meets first


def test_run_stops_at_the_first_failure_on_request(sandbox: Sandbox) -> None:
    limits = replace(PATIENT, stop_at_first_failure=True)
    tests = [Test(payload=number) for number in (1, 0, 1)]
    outcome = run(sandbox, "assert payload", *tests, limits=limits)
    assert [test.status for test in outcome.tests] == [Status.OK, Status.FAILED, Status.NOT_RUN]


def test_total_wall_time_is_limited(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the service jumps beyond it while the second of three tests runs."""
    ahead = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0])
    monkeypatch.setattr(supervisor, "time", clock)
    monkeypatch.setattr(sandbox_module, "time", clock)
    limits = replace(PATIENT, cpu_seconds=900, wall_seconds=900, total_wall_seconds=600)
    said, says = os.pipe()

    def jump() -> None:
        os.read(said, 100)
        ahead[0] = 601.0

    watcher = threading.Thread(target=jump)
    watcher.start()
    source = "import time\nif payload == 1:\n    print('here', flush=True)\n    time.sleep(800)"
    tests = tuple(Test(payload=number) for number in range(3))
    with open(says, "wb") as stdout:
        program = Program(source=source, tests=tests)
        outcome = sandbox.run(program, limits, stdout=stdout, stop=threading.Event())
    watcher.join()
    os.close(said)
    assert [test.status for test in outcome.tests] == [Status.OK, Status.WALL_LIMIT, Status.NOT_RUN]


def test_a_program_that_does_not_compile_is_an_error_with_the_line(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "x = 1\ndef f(:\n")
    assert "SyntaxError" in outcome.error and "line 2" in outcome.error


def test_a_file_can_be_its_input_and_another_its_output(sandbox: Sandbox) -> None:
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
        source.write(b"7\n" * 100_000)
        source.seek(0)
        program = Program(source="import sys\nfor line in sys.stdin: print(int(line) * 6)")
        outcome = sandbox.run(program, PATIENT, stdin=source, stdout=target)
        assert outcome.only.status is Status.OK and outcome.only.stdout == b""
        assert os.fstat(target.fileno()).st_size == 300_000


def test_files_and_packages_are_there_to_be_read(sandbox: Sandbox) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        Path(folder, "planet.py").write_text("NAME = 'Oolong'")
        source = "import planet\nreport([planet.NAME, open('notes/a.txt').read()])"
        outcome = run(sandbox, source, packages=(Path(folder),), files={"notes/a.txt": b"hello"})
    assert outcome.only.value == b'["Oolong", "hello"]', outcome


def test_one_socket_can_be_bound_and_answers(sandbox: Sandbox) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o711)
        path = Path(folder, "generate.sock")
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        path.chmod(0o666)
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            connection.sendall(connection.recv(100).upper())
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        source = """
import socket
with socket.socket(socket.AF_UNIX) as s:
    s.connect("/run/service.sock")
    s.sendall(b"generate")
    report(s.recv(100).decode())
"""
        outcome = run(sandbox, source, socket=path)
        server.close()
    assert outcome.only.value == b'"GENERATE"', outcome


def test_stop_event_ends_the_run_at_once(sandbox: Sandbox) -> None:
    stop = threading.Event()
    said, says = os.pipe()
    watcher = threading.Thread(target=lambda: (os.read(said, 100), stop.set()))
    watcher.start()
    limits = replace(PATIENT, cpu_seconds=900, wall_seconds=900, total_wall_seconds=900)
    program = Program(source="import time; print('here', flush=True); time.sleep(800)")
    with open(says, "wb") as stdout:
        outcome = sandbox.run(program, limits, stdout=stdout, stop=stop)
    watcher.join()
    os.close(said)
    assert outcome.only.status is Status.NOT_RUN


def test_sandbox_that_cannot_start_is_a_sandbox_error(sandbox: Sandbox) -> None:
    runtime_files = replace(sandbox.runtime_files, python=Path("/nowhere/python3"))
    outcome = Sandbox(runtime_files, sandbox.isolation, slots=1).run(
        Program(source="", tests=(Test(), Test())), LIMITS
    )
    assert [test.status for test in outcome.tests] == [Status.SANDBOX_ERROR] * 2
    assert "/nowhere/python3" in outcome.error


def test_memory_is_limited_without_control_groups(sandbox: Sandbox) -> None:
    supervised = Sandbox(
        sandbox.runtime_files, replace(sandbox.isolation, cgroups=None), slots=1, first_uid=45_000
    )
    source = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        kept = b"x" * (60 * 1024**2)
        time.sleep(50)
        os._exit(0)
time.sleep(50)
"""
    outcome = supervised.run(Program(source=source, tests=(Test(), Test())), PATIENT)
    assert [test.status for test in outcome.tests] == [Status.MEMORY_LIMIT] * 2
    assert outcome.peak_memory_bytes is None


def test_supervisor_limits_processes_by_counting(sandbox: Sandbox) -> None:
    counting = replace(sandbox.isolation, kernel_limits_processes=False, cgroups=None)
    supervised = Sandbox(sandbox.runtime_files, counting, slots=1, first_uid=45_000)
    source = "import os, time\nfor _ in range(60):\n    if os.fork() == 0: time.sleep(50)\ntime.sleep(50)"
    assert supervised.run(Program(source=source), PATIENT).only.status is Status.PROCESS_LIMIT


@pytest.mark.parametrize(
    ("source", "limits", "status"),
    [
        ("for n in range(300): open(f'/tmp/{n}', 'w').close()", {"scratch_files": 200}, Status.OUTPUT_LIMIT),
        (
            "open('/tmp/a', 'wb').write(b'x' * (15 * 1024**2))",
            {"memory_bytes": 16 * 1024**2},
            Status.MEMORY_LIMIT,
        ),
    ],
    ids=["names", "bytes"],
)
def test_scratch_files_count_as_memory(
    sandbox: Sandbox, source: str, limits: dict[str, int], status: Status
) -> None:
    supervised = Sandbox(
        sandbox.runtime_files, replace(sandbox.isolation, cgroups=None), slots=1, first_uid=45_000
    )
    program = Program(source=f"import time\n{source}\ntime.sleep(50)")
    assert supervised.run(program, replace(PATIENT, **limits)).only.status is status


def test_calls_beyond_the_slots_wait_and_report_the_wait(sandbox: Sandbox) -> None:
    narrow = Sandbox(sandbox.runtime_files, sandbox.isolation, slots=1, first_uid=45_000)
    asked = threading.Semaphore(0)
    take = narrow._free.get

    def take_when_told() -> int:
        asked.release()
        return take()

    narrow._free.get = take_when_told  # type: ignore[method-assign,assignment]
    waits: list[float] = []
    answer_out, answer = os.pipe()

    def first() -> None:
        with open(answer_out, "rb") as stdin:
            narrow.run(Program(source="input()"), PATIENT, stdin=stdin)

    def second() -> None:
        waits.append(narrow.run(Program(source="pass"), PATIENT).wait_seconds)

    threads = []
    for call in (first, second):
        threads.append(threading.Thread(target=call))
        threads[-1].start()
        asked.acquire()
    held = time.monotonic()
    time.sleep(0.3)
    held = time.monotonic() - held
    os.write(answer, b"\n")
    for thread in threads:
        thread.join()
    os.close(answer)
    assert waits[0] >= held


def test_many_runs_leak_nothing(sandbox: Sandbox) -> None:
    run(sandbox, "pass")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        assert run(sandbox, "pass").only.status is Status.OK
    assert len(os.listdir("/proc/self/fd")) == before
    cgroups = sandbox.isolation.cgroups
    assert cgroups is None or cgroups.remaining() == []


def test_probe_detects_the_required_capabilities(sandbox: Sandbox) -> None:
    probe_result = probe_sandbox(slots=1)
    assert probe_result.capabilities.runs_code
    assert probe_result.capabilities.own_uid == (os.geteuid() == 0)
    assert probe_result.require() is probe_result.sandbox


def test_probe_detects_process_counting_after_a_stall(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a kernel that does not bound them by itself."""
    usage, seen = resource_usage.measure_usage, set()

    def late(pid: int) -> resource_usage.Usage:
        if pid not in seen:
            seen.add(pid)
            time.sleep(3.0)
        return usage(pid)

    def counting(isolation: IsolationConfig) -> Sandbox:
        counted = replace(isolation, kernel_limits_processes=False, cgroups=None)
        return Sandbox(sandbox.runtime_files, counted, slots=1, first_uid=45_000)

    monkeypatch.setattr(resource_usage, "measure_usage", late)
    bound = probe._process_bound(replace(sandbox.isolation, cgroups=None), counting)[1]
    assert bound == "supervisor"


def test_without_a_user_namespace_it_refuses_and_names_the_command() -> None:
    command = "sudo sysctl -w user.max_user_namespaces=15000"
    closed = Capabilities(
        user_namespace=False, seccomp=False, memory_bound="none", process_bound="none", own_uid=False,
        message="no sandbox can be made: bwrap: No permissions to create new namespace", command=command,
    )  # fmt: skip
    with pytest.raises(
        SandboxUnsupported, match=r"No permissions.*Type: sudo sysctl -w user.max_user_namespaces"
    ):
        closed.require()


DOCKER = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined …"


@pytest.mark.parametrize(
    ("settings", "container", "command"),
    [
        ((0, 1, 0), False, "sudo sysctl -w user.max_user_namespaces=15000"),
        ((100, 0, None), False, "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        ((100, 1, 1), False, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
        ((100, None, None, True), True, ENTER_WITHOUT_CHROOT),
        ((100, None, None), False, ENTER_WITHOUT_CHROOT),
        ((100, None, None, False, True), False, DOCKER),
        ((100, None, None), True, DOCKER),
    ],
)  # fmt: skip
def test_the_command_fits_what_forbids_it(settings: tuple, container: bool, command: str) -> None:
    read = KernelSettings(
        max_user_namespaces=settings[0], unprivileged_userns_clone=settings[1],
        apparmor_restrict_unprivileged_userns=settings[2], in_chroot=settings[3:4] == (True,),
        filtered=settings[4:5] == (True,),
    )  # fmt: skip
    assert command_for_user_namespaces(read, in_container=container) == command


def test_the_numbers_of_the_system_calls_are_those_of_the_kernel_headers() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("needs linux-libc-dev")
    lines = [line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR_")]
    numbers = {words[1].removeprefix("__NR_"): int(words[2]) for words in lines}
    known = {name: number for name, number in seccomp.ALLOWED.items() if name in numbers}
    assert len(known) >= 190
    assert known == {name: numbers[name] for name in known}


def test_the_filter_fits_into_what_the_kernel_takes() -> None:
    size = len(seccomp.program())
    assert size % 8 == 0 and size // 8 < 4096


def test_limits_of_zero_are_rejected() -> None:
    with pytest.raises(ValueError, match="memory_bytes=0"):
        Limits(memory_bytes=0)


def test_bytes_that_are_no_text_come_back_as_they_are(sandbox: Sandbox) -> None:
    source = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert run(sandbox, source, Test(stdin=bytes(range(256)))).only.stdout == bytes(range(256))


def test_failed_copy_of_runtime_files_is_reported_as_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*, for_other_users: bool) -> None:
        raise OSError(28, "No space left on device", "/var/lib/oolong-sandbox-0-x")

    monkeypatch.setattr("oolong.sandbox.probe.find_runtime_files", full)
    probe_result = probe_sandbox(slots=1)
    assert probe_result.sandbox is None and "No space left on device" in probe_result.capabilities.message
    with pytest.raises(SandboxUnsupported):
        probe_result.require()
