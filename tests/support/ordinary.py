"""Runs a Python program as an ordinary user: `python -m tests.support.ordinary PROGRAM`, started by root.

A Python that lies where only root can go is shown at the same place in mounts that nobody else sees.
"""

import os
import sys

from journeyman.sandbox.inside import linux

UID = 63999


def main() -> None:
    linux.open_up((sys.base_prefix, sys.prefix))
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    os.environ["HOME"] = "/nonexistent"
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
