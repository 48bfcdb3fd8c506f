"""The `oolong` command without its start: a process that has imported it, and forks for each call.

A pipeline calls the command ten times; a process each would spend ten seconds of a core on imports. Arguments,
environment, folder, streams and exit status are those of a process of its own; signals are not handed on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
CALLER = """import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    call = {"words": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps(call).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.makefile().read() or 1))
"""


@contextmanager
def quick_command(folder: Path) -> Iterator[str]:
    """Yields the line of a shell script that stands for `oolong`; its arguments follow."""
    address = folder / "oolong.sock"
    caller = folder / "caller.py"
    caller.write_text(CALLER)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.quick_command", str(address)],
        cwd=ROOT, env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"},
    )  # fmt: skip
    try:
        wait_until(address.exists, "the command is imported")
        yield f"{sys.executable} -S -E {caller} {address}"
    finally:
        server.terminate()
        server.wait(60)


def _serve(address: str) -> None:
    from oolong.cli.app import command

    command()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        while True:
            caller, _ = listener.accept()
            if os.fork() == 0:
                os._exit(_answer(caller))
            caller.close()


def _answer(caller: socket.socket) -> int:
    from oolong.cli.app import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(caller, 1, 3)
    with caller.makefile() as reader:
        call = json.loads(reader.read())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["folder"])
    sys.argv = ["oolong", *call["words"]]
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 (as the interpreter would at the end of a process)
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    caller.sendall(str(int(str(code or 0))).encode())
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
