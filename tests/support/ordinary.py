"""Runs a Python program as an ordinary user: `python -m tests.support.ordinary PROGRAM`, started by root.

A Python that lies where only root can go is shown at the same place in mounts that nobody else sees.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from journeyman.sandbox.inside import linux

UID = 63999


def closed(prefix: Path) -> Path | None:
    """The first folder on the way there that others cannot enter."""
    return next((place for place in reversed(prefix.parents) if not place.stat().st_mode & 0o001), None)


def prefixes() -> Iterator[Path]:
    yield from dict.fromkeys(Path(prefix).resolve() for prefix in (sys.base_prefix, sys.prefix))


def open_up() -> None:
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    for prefix in prefixes():
        if (door := closed(prefix)) is not None:
            aside = tempfile.mkdtemp(prefix="journeyman-")
            linux.mount(str(prefix), aside, flags=linux.MS_BIND | linux.MS_REC)
            linux.mount("tmpfs", str(door), "tmpfs", 0, "size=1m,mode=0755")
            prefix.mkdir(parents=True)
            linux.mount(aside, str(prefix), flags=linux.MS_BIND | linux.MS_REC)
            linux.unmount(aside)
            Path(aside).rmdir()


def main() -> None:
    open_up()
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    os.environ["HOME"] = "/nonexistent"
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
