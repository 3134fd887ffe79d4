"""The walls of a run within bubblewrap's: namespaces, a filesystem and a user of its own, no capability, a filter."""

import os
import resource
from typing import Any

from . import linux, seccomp
from .cgroup import Cgroup
from .walls import Limits, Room, Usage, Walls, end, processes, rlimits, shared_out, usage

USER = 1000
"""As which the code sees itself."""
BOX = "/sandbox/box"
LENT = "/sandbox/cgroup"
"""Where the host put the control groups that it lends."""
NAMESPACES = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
READ_ONLY = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
SHARE = {"work": "/sandbox/work", "home": "/sandbox/home", "tmp": "/tmp", "shm": "/dev/shm"}
"""Where the code may write: parts of one box, so that they share its limits."""


class Sealed(Walls):
    """Every run's own."""

    def __init__(self) -> None:
        super().__init__("/")
        self.work, self.home, self.temporary = SHARE["work"], SHARE["home"], SHARE["tmp"]
        self.cgroup: Cgroup | None = None

    def surround(self, limits: Limits) -> None:
        linux.unshare(NAMESPACES)
        if os.path.isdir(LENT):
            self.cgroup = Cgroup(LENT, f"run-{os.getpid()}")
            # One more: the first process within is ours.
            self.cgroup.limit(memory=limits["memory"], processes=limits["processes"] + 1)

    def hold(self, init: int) -> None:
        if self.cgroup:
            self.cgroup.take(init)

    def furnish(self, limits: Limits) -> None:
        hidden = linux.MS_NOSUID | linux.MS_NODEV
        room = f"size={limits['disk']},nr_inodes={limits['inodes'] + len(SHARE) + 1},mode=0755"
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("box", BOX, "tmpfs", hidden, room)
        for name, place in SHARE.items():
            os.mkdir(f"{BOX}/{name}")
            linux.mount(f"{BOX}/{name}", place, flags=linux.MS_BIND)
        linux.unmount(BOX)
        if os.path.isdir(LENT):
            linux.mount("nothing", LENT, "tmpfs", hidden | linux.MS_RDONLY, "size=4k,nr_inodes=2,mode=0")
        linux.mount("proc", "/proc", "proc", hidden | linux.MS_NOEXEC)
        for place in filter(os.path.exists, ("/proc/sys", "/proc/sysrq-trigger")):
            linux.mount(place, place, flags=linux.MS_BIND)
            linux.mount("none", place, flags=READ_ONLY)
        linux.loopback_up()

    def confine(self, limits: Limits) -> None:
        linux.become_only_user(USER, USER)
        rlimits(limits)
        # Counted for each user namespace by itself, and so for each run.
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"],) * 2)
        linux.drop_capabilities()
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        try:
            seccomp.apply()
        except (OSError, NotImplementedError):
            # The self-test says that it is missing.
            return

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": self.home, "TMPDIR": self.temporary, "LANG": "C.UTF-8", "USER": "code"}

    def usage(self, init: int) -> Usage:
        # The warden shares the mounts of the run, so this /proc shows nobody else.
        pids = [pid for pid in processes("/proc") if pid != 1]
        used = usage("/proc", pids)
        if self.cgroup:
            used.cpu_seconds = max(used.cpu_seconds, self.cgroup.cpu_seconds)
            used.memory = 0
        elif used.memory:
            used.memory = shared_out("/proc", pids)
        return used

    def refused(self) -> str | None:
        if self.cgroup and self.cgroup.refused_memory:
            return "memory"
        return "processes" if self.cgroup and self.cgroup.refused_processes else None

    def peak_memory(self) -> int | None:
        return self.cgroup.peak_memory if self.cgroup else None

    def room(self) -> Room | None:
        return Room(self.work)

    def kill(self, init: int) -> None:
        # The kernel ends all the others of its process namespace before it is gone itself.
        end(init)

    def clean(self) -> None:
        if self.cgroup:
            self.cgroup.remove()


def sealed(_: Any = None) -> Walls:
    return Sealed()
