"""Goes where bubblewrap is to be started: into a control group, past folders that only root can enter, to a user of its own.

    python -I inside launch JSON

The kernel does not hold uid 0 to its limits, and asks it for no permission: root starts the sandbox, and must not run it.
"""

import json
import os
from collections.abc import Sequence

from . import linux


def main(arguments: Sequence[str]) -> None:
    """`{"command": [...], "groups": [path of cgroup.procs], "uid": int | null, "stage": folder, "binds": [[source, place]]}`"""
    given = json.loads(arguments[0])
    for group in given["groups"]:
        with open(group, "w", encoding="ascii") as file:
            file.write("0")
    if given["uid"] is not None:
        _stage(given["stage"], given["binds"])
        os.setgroups([])
        os.setresgid(given["uid"], given["uid"], given["uid"])
        os.setresuid(given["uid"], given["uid"], given["uid"])
    os.execv(given["command"][0], given["command"])  # noqa: S606 - no shell is wanted between


def _stage(stage: str, binds: Sequence[tuple[str, str]]) -> None:
    """Show what the sandbox will show at a place that everybody reaches, in mounts that nobody else sees."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("stage", stage, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,mode=0755")
    for source, place in binds:
        if os.path.isdir(source):
            os.mkdir(place)
        else:
            open(place, "x").close()
        linux.mount(source, place, flags=linux.MS_BIND | linux.MS_REC)
