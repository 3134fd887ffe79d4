"""Tries the walls from within, and, as a control, where there are none: `python probes.py` with what to try as JSON on stdin.

Prints, for each probe, whether it got through.
"""

import ctypes
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

CLONE_NEWUSER = 0x10000000
Given = dict[str, Any]


def network(given: Given) -> bool:
    """The host's loopback."""
    with socket.create_connection(("127.0.0.1", given["port"]), timeout=2):
        return True


def private_file(given: Given) -> bool:
    return bool(Path(given["file"]).read_text() == given["canary"])


def process(given: Given) -> bool:
    """One of the host's, known by when it started: its number alone may be another's here."""
    fields = Path(f"/proc/{given['pid']}/stat").read_text().rpartition(")")[2].split()
    os.kill(given["pid"], 0)
    return bool(fields[19] == given["started"])


def environment(given: Given) -> bool:
    held = [given["canary"] in value for value in os.environ.values()]
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            held.append(given["canary"].encode() in path.read_bytes())
        except OSError:
            continue
    return any(held)


def writing(given: Given) -> bool:
    """Where the host can write; and, wherever this runs, into the system."""
    for folder in (given["folder"], "/", "/usr", "/etc", "/dev", "/proc/sys"):
        try:
            Path(folder, "probe").write_text("probe")
        except OSError:
            continue
        Path(folder, "probe").unlink()
        return True
    return False


def capabilities(given: Given) -> bool:
    return any(int(status(name), 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))


def privileges(given: Given) -> bool:
    """Could a program with a set-user-id bit gain something?"""
    return status("NoNewPrivs") == "0"


def filtered(given: Given) -> bool:
    """A namespace of one's own, the first step of many ways out. In a child, which it would change."""
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(CLONE_NEWUSER) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def disk(given: Given) -> bool:
    Path("big").write_bytes(bytes(2 << 20))
    Path("big").unlink()
    return True


def inodes(given: Given) -> bool:
    for number in range(given["inodes"] + 1):
        Path(f"many{number}").touch()
    return True


def status(name: str) -> str:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return lines[name].strip()


PROBES = (network, private_file, process, environment, writing, capabilities, privileges, filtered, disk, inodes)


def main() -> None:
    given = json.load(sys.stdin)
    through = {}
    for probe in PROBES:
        try:
            through[probe.__name__] = bool(probe(given))
        except OSError:
            through[probe.__name__] = False
    sys.stdout.write(json.dumps(through))


if __name__ == "__main__":
    main()
