#!/usr/bin/env python3
"""Entry point of a checkout: set up, start, stop and test Oolong; other commands go to Django.

Needs only Python 3.11. Oolong's own commands run in the Python that started this file. Any other command is
Django's and runs in the environment that `setup` creates. The syntax stays compatible with older Python
versions, so that those can still print what is missing.
"""

import os
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))
REQUIRED_PYTHON = (3, 11)


def find_python():
    """Return the path of a Python 3.11 on PATH, or None."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidate = os.path.join(folder, "python%d.%d" % REQUIRED_PYTHON)
        if os.access(candidate, os.X_OK):
            return candidate
    return None


def main():
    if sys.version_info[:2] != REQUIRED_PYTHON:
        python = find_python()
        if python is None:
            sys.stderr.write(
                "Oolong needs Python %d.%d; this is Python %d.%d and no python%d.%d is on PATH.\n"
                "On Debian 12: apt-get install python3 python3-venv\n"
                "On Ubuntu: add a package source that has python3.11, then apt-get install python3.11-venv\n"
                % (REQUIRED_PYTHON + sys.version_info[:2] + REQUIRED_PYTHON)
            )
            return 2
        os.execv(python, [python] + sys.argv)
    sys.path.insert(0, os.path.join(ROOT, "platform"))
    from local_stack import commands

    return commands.main(ROOT, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
