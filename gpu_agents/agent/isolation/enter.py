"""`enter.py UID DIRECTORY COMMAND…`: drop root irrevocably, then run the command in the job's view.

bubblewrap created the namespaces and kept two capabilities, CAP_SETUID and CAP_SETGID, which are dropped here.
"""

import ctypes
import os
import sys

PR_SET_NO_NEW_PRIVS = 38


def main(uid: int, directory: str, command: list[str]) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_NO_NEW_PRIVS) failed")
    os.chdir(directory)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
