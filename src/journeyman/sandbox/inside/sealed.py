"""The walls of a run within bubblewrap's: namespaces, a filesystem and a user of its own, no capability, a filter."""

import os
import resource

from . import linux, seccomp
from .cgroup import Cgroup
from .walls import Limits, ProcessUsage, Room, Walls, end, processes, rlimits, shared_out, usage

USER = 1000
"""As which the code sees itself."""
BOX = "/sandbox"
"""Of the run, and of its limits: what else lies there is hidden by it."""
LENT = f"{BOX}/cgroup"
"""Where the host put the control groups that it lends."""
NAMESPACES = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
HIDDEN = linux.MS_NOSUID | linux.MS_NODEV
READ_ONLY = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
WORK, HOME, TEMPORARY, SHARED = (f"{BOX}/{name}" for name in ("work", "home", "tmp", "shm"))


class Sealed(Walls):
    """Every run's own."""

    def __init__(self) -> None:
        super().__init__("/")
        self.work, self.home, self.temporary = WORK, HOME, "/tmp"
        self.cgroup: Cgroup | None = None

    def surround(self) -> None:
        linux.unshare(NAMESPACES)
        if os.path.isdir(LENT):
            self.cgroup = Cgroup(LENT, f"run-{os.getpid()}")

    def hold(self, init: int) -> None:
        if self.cgroup:
            self.cgroup.take(init)

    def build(self) -> None:
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("proc", "/proc", "proc", HIDDEN | linux.MS_NOEXEC)
        for place in filter(os.path.exists, ("/proc/sys", "/proc/sysrq-trigger")):
            linux.mount(place, place, flags=linux.MS_BIND)
            linux.mount("none", place, flags=READ_ONLY)
        linux.loopback_up()

    def allow(self, limits: Limits) -> None:
        if self.cgroup:
            # One more: the first process within is ours.
            self.cgroup.limit(memory=limits["memory"], processes=limits["processes"] + 1)

    def furnish(self, limits: Limits) -> None:
        folders = (WORK, HOME, TEMPORARY, SHARED)
        room = f"size={limits['disk']},nr_inodes={limits['inodes'] + len(folders) + 1},mode=0755"
        linux.mount("box", BOX, "tmpfs", HIDDEN, room)
        for folder in folders:
            os.mkdir(folder)
        linux.mount(TEMPORARY, "/tmp", flags=linux.MS_BIND)
        linux.mount(SHARED, "/dev/shm", flags=linux.MS_BIND)

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

    def usage(self, init: int) -> ProcessUsage:
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
        # Not a folder in it, which the code may have moved away.
        return Room(BOX)

    def kill(self, init: int) -> None:
        # The kernel ends all the others of its process namespace before it is gone itself.
        end(init)

    def clean(self) -> None:
        if self.cgroup:
            self.cgroup.remove()
            self.cgroup = None
