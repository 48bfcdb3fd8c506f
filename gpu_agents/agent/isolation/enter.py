"""`enter.py UID DIRECTORY COMMAND…`: drop root irrevocably, then run the command in the job's view.

bubblewrap created the namespaces and kept two capabilities, CAP_SETUID and CAP_SETGID, which are dropped here. With `-`
as the UID there is no root to drop. The supervisor let bubblewrap ignore SIGTERM, and the command inherits that.
"""

import ctypes
import os
import signal
import sys

PR_SET_NO_NEW_PRIVS = 38


def main(uid: int | None, directory: str, command: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if uid is not None:
        drop_root(uid)
    os.chdir(directory)
    os.execv(command[0], command)


def drop_root(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_NO_NEW_PRIVS) failed")


if __name__ == "__main__":
    main(None if sys.argv[1] == "-" else int(sys.argv[1]), sys.argv[2], sys.argv[3:])
