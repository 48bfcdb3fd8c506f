"""The only program that a sandbox starts: process 1 of its namespace, which forks once per test.

It runs no user code in its own process. Tests cannot signal process 1, trace it or see its descriptors (there is
no /proc). Arguments: the descriptors of the job (marshal), of the results and of the
supervisor's answers, then those that become standard input and output of the tests (-1: captured). Standard
library only; it imports nothing from this package.

Every sandbox pays for each import below, so slow modules are imported where they are needed, or not at all
(`_signal` is `signal` without its enumerations).

Results: one JSON line each. `{"ready": true}`; per test its record, followed by the bytes that the record
counts in `stdout`, `stderr` and `value`; `{"end": true}`. When the time of a test is over: `{"late": number}`,
and the supervisor answers with a line: the number, and the seconds that the test gets beyond it.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import atexit
import builtins
import errno
import io
import marshal
import os
import resource
import select
import sys
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCRATCH = "/tmp"
STDIN_FILE = "/tmp/.stdin"  # /dev/stdin leads here
ANSWER_SECONDS = 5.0
OUT_OF_MEMORY, NO_MORE_PROCESSES = 120, 121  # exit statuses that name the limit


def main() -> None:
    job_fd, result_fd, control_fd, stdin_fd, stdout_fd = (int(word) for word in sys.argv[1:6])
    with open(job_fd, "rb") as file:
        job = marshal.load(file)
    keep = {result_fd, control_fd, stdin_fd, stdout_fd}
    for fd in range(3, 256):
        if fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 ignores signals without a handler
    limits = job["limits"]
    if limits["bound_processes"]:
        # One more than asked for: this process counts as well.
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"] + 1,) * 2)
    sys.path[:] = [path for path in sys.path if path] + job["packages"]
    names = {"__builtins__": builtins, "common": job["common"]}
    import _sitebuiltins  # what the `site` module would have given

    builtins.exit = _sitebuiltins.Quitter("exit", "sys.exit()")
    builtins.quit = _sitebuiltins.Quitter("quit", "sys.exit()")
    sys.set_int_max_str_digits(100_000)
    for name in job["imports"]:
        try:
            __import__(name)
        except ImportError as error:
            _send(result_fd, {"error": f"import {name}: {error}"})
            return
    try:
        code = compile(job["source"], "program.py", "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        _send(result_fd, {"error": f"{type(error).__name__}: {error}"})
        return
    _send(result_fd, {"ready": True})
    for index, test in enumerate(job["tests"]):
        record, outputs = run_test(
            index, test, code, names, job, (result_fd, control_fd, stdin_fd, stdout_fd)
        )
        _send(result_fd, record, *outputs)
        if limits["stop_at_first_failure"] and record["status"] != "ok":
            break
        try:
            clear_scratch()
        except (OSError, RecursionError):
            break  # the remaining tests get another sandbox
    _send(result_fd, {"end": True})


def run_test(
    index: int,
    test: dict[str, Any],
    code: types.CodeType,
    names: dict[str, Any],
    job: dict[str, Any],
    fds: tuple[int, int, int, int],
) -> tuple[dict[str, Any], list[bytes]]:
    """Fork the test, wait for it, kill what is left. Returns the record and the captured bytes."""
    limits = {**job["limits"], "output_bytes": test["output_bytes"]}
    result_fd, control_fd, stdin_fd, stdout_fd = fds
    for name, content in {".stdin": test["stdin"], **job["files"]}.items():
        path = f"{SCRATCH}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    pipes = {"stderr": os.pipe(), "value": os.pipe()}
    if stdout_fd < 0:
        pipes["stdout"] = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(result_fd)
            os.close(control_fd)
            os.dup2(os.open(STDIN_FILE, os.O_RDONLY) if stdin_fd < 0 else stdin_fd, 0)
            os.dup2(pipes["stdout"][1] if stdout_fd < 0 else stdout_fd, 1)
            os.dup2(pipes["stderr"][1], 2)
            os.dup2(pipes["value"][1], 3)
            os.closerange(4, 256)
            status = exec_test(code, {**names, "payload": test["payload"]}, limits)
        except BaseException:  # noqa: BLE001 - whatever went wrong, this process must not go on as process 1
            os._exit(99)
        os._exit(status)
    for _, end in pipes.values():
        os.close(end)
    watched = os.pidfd_open(pid)
    captured, flooded = capture(
        watched, {name: ends[0] for name, ends in pipes.items()}, limits, began, (result_fd, control_fd)
    )
    ended_alone = bool(select.select([watched], [], [], 0)[0])
    full = not ended_alone and not flooded and not can_fork()
    seconds = time.monotonic() - began
    own_status, cpu_seconds = kill_all(pid)
    for name, ends in pipes.items():
        drain(ends[0], captured[name], limits["output_bytes"])
        os.close(ends[0])
    os.close(watched)
    ended = os.waitstatus_to_exitcode(own_status)
    exit_code, number = (ended, 0) if ended >= 0 else (None, -ended)
    flooded = flooded or any(len(data) > limits["output_bytes"] for data in captured.values())
    record = {
        "test": index,
        "status": classify_exit(exit_code, number, ended_alone, flooded, full, cpu_seconds, limits),
        "exit": exit_code if ended_alone else None,
        "signal": number if ended_alone else 0,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }
    outputs = []
    for name in ("stdout", "stderr", "value"):
        data = bytes(captured.get(name, b""))[: limits["output_bytes"]]
        record[name] = len(data)
        outputs.append(data)
    return record, outputs


def classify_exit(
    code: int | None,
    number: int,
    ended_alone: bool,
    flooded: bool,
    full: bool,
    cpu_seconds: float,
    limits: dict[str, Any],
) -> str:
    if flooded:
        return "output_limit"
    if not ended_alone:
        return "process_limit" if full else "wall_limit"
    if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_seconds >= limits["cpu_seconds"]):
        return "cpu_limit"
    if number:
        return "killed"
    by_exit = {0: "ok", OUT_OF_MEMORY: "memory_limit", NO_MORE_PROCESSES: "process_limit"}
    return by_exit.get(code if code is not None else -1, "failed")


def exec_test(code: types.CodeType, names: dict[str, Any], limits: dict[str, Any]) -> int:
    """Apply the limits and run the program in the forked process. Returns the exit status."""
    seconds = int(-(-limits["cpu_seconds"] // 1))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (limits["address_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits["open_files"],) * 2)
    # 0 would bound files alone: a kernel that pipes cores to a program stops at 1. A service may have been given 0.
    cores = 0 if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (cores, cores))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    # Text streams of its own: those of process 1 belong to other descriptors.
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        errors = "replace" if fd == 0 else "backslashreplace"
        stream = io.TextIOWrapper(open(fd, mode + "b", closefd=False), encoding="utf-8", errors=errors)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv = ["program.py"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module = types.ModuleType("__main__")
    module.__dict__.update(names, report=report)
    sys.modules["__main__"] = module
    status = 1
    try:
        exec(code, module.__dict__)
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except MemoryError:
        status = OUT_OF_MEMORY
    except BaseException as error:  # noqa: BLE001 - a program may raise anything
        status = NO_MORE_PROCESSES if is_fork_failure(error) else 1
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
    # What an interpreter does at its end: wait for threads, then the exit functions.
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (OSError, ValueError, AttributeError):  # the program may have closed or replaced it
            status = status or 1
    return status & 0xFF


def is_fork_failure(error: BaseException) -> bool:
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return True
    return isinstance(error, BlockingIOError) and error.errno == errno.EAGAIN


def report(value: object) -> None:
    """Return one JSON value to the host. A second call makes the output invalid JSON."""
    import json  # there already, where the program speaks of it

    data = json.dumps(value).encode()
    while data:
        data = data[os.write(3, data) :]


def capture(
    watched: int, readers: dict[str, int], limits: dict[str, Any], began: float, supervisor: tuple[int, int]
) -> tuple[dict[str, bytearray], bool]:
    """Read output until the test exits, runs out of time or exceeds its output limit."""
    captured = {name: bytearray() for name in readers}
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    names = {}
    for name, fd in readers.items():
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
        names[fd] = name
    deadline = began + limits["wall_seconds"]
    asked = int(began * 1000) % 10**9 * 1000  # no answer to an earlier test's question is this one's
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            asked += 1
            more = request_time(*supervisor, asked)
            if more <= 0:
                return captured, False
            deadline = time.monotonic() + more
            continue
        events = poll.poll(left * 1000)
        ended = False
        for fd, _ in events:
            if fd == watched:
                ended = True
                continue
            data = os.read(fd, 65536)
            if not data:
                poll.unregister(fd)
                continue
            captured[names[fd]] += data
            if len(captured[names[fd]]) > limits["output_bytes"]:
                return captured, True
        if ended:
            return captured, False


def request_time(result_fd: int, control_fd: int, number: int) -> float:
    """Ask the supervisor for extra seconds to make up for starvation. 0 if refused or without a reply."""
    _send(result_fd, {"late": number})
    while select.select([control_fd], [], [], ANSWER_SECONDS)[0]:
        for line in os.read(control_fd, 4096).splitlines():  # lines are written whole
            answered, more = line.split()
            if int(answered) == number:
                return float(more)
    return 0.0


def drain(fd: int, captured: bytearray, limit: int) -> None:
    while len(captured) <= limit:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        if not data:
            return
        captured += data


def can_fork() -> bool:
    """Whether another process can start; if not, the hung test has reached the process limit."""
    try:
        pid = os.fork()
    except BlockingIOError:
        return False
    if pid == 0:
        os._exit(0)
    return True  # `kill_all` reaps it


def kill_all(pid: int) -> tuple[int, float]:
    """Kill and reap every other process. Returns the status of the test and the CPU seconds of all."""
    own_status, cpu_seconds = 0, 0.0
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    while True:
        try:
            child, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return own_status, cpu_seconds
        cpu_seconds += usage.ru_utime + usage.ru_stime
        if child == pid:
            own_status = status


def clear_scratch() -> None:
    """Empty the scratch directory, even if the test removed its permissions.

    Raises OSError when something remains.
    """
    os.chmod(SCRATCH, 0o700)
    for folder, folders, _ in os.walk(SCRATCH):
        for name in folders:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    for folder, folders, files in os.walk(SCRATCH, topdown=False, onerror=_raise):
        for name in files:
            os.unlink(os.path.join(folder, name))
        for name in folders:
            path = os.path.join(folder, name)
            (os.unlink if os.path.islink(path) else os.rmdir)(path)


def _raise(error: OSError) -> None:
    raise error


def _send(fd: int, record: dict[str, Any], *parts: bytes) -> None:
    data = _as_json(record) + b"\n" + b"".join(parts)
    while data:
        data = data[os.write(fd, data) :]


def _as_json(record: dict[str, Any]) -> bytes:
    """Serialize a flat record without importing json. Only error messages contain arbitrary text."""
    if "error" in record:
        import json

        return json.dumps(record).encode()
    words = []
    for name, value in record.items():
        text = "null" if value is None else "true" if value is True else repr(value).replace("'", '"')
        words.append(f'"{name}": {text}')
    return ("{" + ", ".join(words) + "}").encode()


if __name__ == "__main__":
    main()
