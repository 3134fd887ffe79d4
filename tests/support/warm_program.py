"""What stands where a Python is named, and has a fork of `tests.support.warm` do what it is asked to: `SOCKET -m MODULE …`.

It ends as that does, hands on to it what it is told by a signal, and when it is killed, so is that. Runs without `site`, and
imports next to nothing.
"""

import json
import os
import signal
import socket
import sys
from typing import NoReturn


def main(path: str, *arguments: str) -> NoReturn:
    arguments = arguments[1:] if arguments[:1] == ("-u",) else arguments
    if not arguments or arguments[0] not in ("-m", "-c"):
        os.execv(sys.executable, [sys.executable, *arguments])
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    asked = {"arguments": arguments, "cwd": os.getcwd(), "env": dict(os.environ), "tied": True}  # noqa: PTH109 - to load pathlib takes longer than all else
    socket.send_fds(server, [b"!"], [0, 1, 2])
    server.sendall(json.dumps(asked).encode() + b"\n")
    told = server.makefile("rb")
    pid = int(told.readline())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(told.readline())
    if code >= 0:
        os._exit(code)
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
