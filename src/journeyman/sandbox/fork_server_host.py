"""Starts the fork server within bubblewrap, and hands it the sockets of runs."""

import asyncio
import contextlib
import itertools
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from journeyman.core.errors import SandboxError
from journeyman.sandbox import inside
from journeyman.sandbox.base import Interpreter

# Control groups that can be lent to a sandbox: below this process's own, where this user may make some.

PREFIX = "journeyman-"
CONTROLLERS = ("memory", "pids", "cpuacct")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """A tree of control groups, and this process's place in it."""

    version: int
    controllers: frozenset[str]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """Folders in which the supervisors of one sandbox make a group for each run."""

    folders: tuple[Path, ...]
    join: tuple[Path, ...] = ()
    """Files that the sandbox writes its process into before it starts: version 2 moves processes only within what was lent."""
    controllers: frozenset[str] = frozenset()

    def give_back(self) -> None:
        """Remove them, with what killed supervisors left in them."""
        for folder in self.folders:
            remove(folder)


def lend(uid: int) -> Lent | None:
    """Groups that this user may fill; `None` where the kernel or container has none to give."""
    name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
    folders: list[Path] = []
    join: list[Path] = []
    controllers: set[str] = set()
    for hierarchy in hierarchies(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()):
        sweep(hierarchy.folder)
        with contextlib.suppress(OSError):
            folder = hierarchy.folder / name
            folder.mkdir()
            folders.append(folder)
            own(folder, uid)
            if hierarchy.version == 2:
                join.append(_enable(folder, uid))
            controllers |= hierarchy.controllers & set(CONTROLLERS)
    if not controllers:
        for folder in folders:
            remove(folder)
        return None
    return Lent(folders=tuple(folders), join=tuple(join), controllers=frozenset(controllers))


def hierarchies(groups: str, mounts: str) -> Iterator[Hierarchy]:
    """From /proc/self/cgroup and /proc/self/mountinfo, those in which something of ours can be limited.

    In version 2 a group with processes in it, such as our own, cannot share out its controllers: its parent is taken.
    """
    places = dict(_mounts(mounts))
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        controllers = frozenset(names.split(","))
        if names:
            found = next(
                (place for each, place in places.items() if controllers & set(CONTROLLERS) and each & controllers), None
            )
        else:
            found = places.get(frozenset())
        if found is None:
            continue
        root, mounted = found
        folder = mounted / Path(path).relative_to(root) if Path(path).is_relative_to(root) else mounted
        if names:
            yield Hierarchy(version=1, controllers=controllers, folder=folder)
        elif (shared := _shared_out(folder.parent if folder != mounted else folder)) & set(CONTROLLERS):
            yield Hierarchy(version=2, controllers=shared, folder=folder.parent if folder != mounted else folder)


def _shared_out(folder: Path) -> frozenset[str]:
    try:
        return frozenset((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return frozenset()


def _mounts(text: str) -> Iterator[tuple[frozenset[str], tuple[Path, Path]]]:
    """The controllers of each mounted hierarchy (none for version 2), with the root and the place of its mount."""
    for line in text.splitlines():
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        root, place = mount.split(" ")[3:5]
        if kind == "cgroup":
            yield frozenset(options.split(",")) & {*CONTROLLERS}, (Path(root), Path(place))
        elif kind == "cgroup2":
            yield frozenset(), (Path(root), Path(place))


def _enable(folder: Path, uid: int) -> Path:
    wanted = [name for name in ("memory", "pids") if name in (folder / "cgroup.controllers").read_text().split()]
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))
    leaf = folder / "fork-server"
    leaf.mkdir()
    own(leaf, uid)
    return leaf / "cgroup.procs"


def own(folder: Path, uid: int) -> None:
    """The folder and the file that takes processes; its limits stay ours."""
    for path in (folder, folder / "cgroup.procs"):
        os.chown(path, uid, -1)


def sweep(folder: Path) -> None:
    """Remove the groups of processes that are gone."""
    with contextlib.suppress(OSError):
        for each in folder.glob(f"{PREFIX}*-*"):
            if not Path(f"/proc/{each.name.removeprefix(PREFIX).split('-')[0]}").exists():
                remove(each)


def remove(folder: Path) -> None:
    """A group and all below it. What still holds a process after a second stays for the next sweep."""
    with contextlib.suppress(OSError):
        for child in [each for each in folder.iterdir() if each.is_dir()]:
            remove(child)
        for _ in range(100):
            try:
                folder.rmdir()
            except OSError:
                time.sleep(0.01)
            else:
                return


READY_SECONDS = 60.0
PROGRAMS = Path(inside.__file__).parent
PLACE = "/sandbox"
"""Where in the sandbox its own things lie: unlike any place where a Python may be installed."""
PROGRAMS_WITHIN = f"{PLACE}/inside"
USER = 1000
UIDS = range(64000, 65000)
"""From which root takes one that belongs to nobody."""
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC = ("ld.so.cache", "localtime", "alternatives", "ssl/certs", "ssl/openssl.cnf", "mime.types", "pki", "ca-certificates")
"""All of /etc that a program needs and that tells nothing of this machine."""
MADE = {
    "passwd": "root:x:0:0:root:/:/bin/sh\n"
    f"code:x:{USER}:{USER}:code:{PLACE}/home:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": f"root:x:0:\ncode:x:{USER}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


@dataclass(frozen=True, slots=True)
class Bind:
    """A part of the host that the sandbox shows."""

    source: Path
    target: str
    writable: bool = False


class ForkServerHost:
    """A warm process behind bubblewrap, from which the supervisor of each run is forked."""

    def __init__(self, interpreter: Interpreter) -> None:
        self.program()
        self._interpreter = interpreter
        root = os.geteuid() == 0
        uid = unused_uid() if root else os.geteuid()
        self._folder = Path(tempfile.mkdtemp(prefix="journeyman-"))
        self._folder.chmod(0o755)
        self._lent = lend(uid)
        self._host, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._for_pytest, theirs_for_pytest = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._broken = False
        with theirs, theirs_for_pytest:
            for each in (self._host, self._for_pytest):
                each.setblocking(False)
            descent = self._descent(uid if root else None, theirs_for_pytest.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(PROGRAMS), "launch", json.dumps(descent)],
                stdin=theirs.fileno(),
                pass_fds=(theirs_for_pytest.fileno(),),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
            )

    @staticmethod
    def program() -> str:
        """Where bubblewrap is.

        Raises:
            SandboxError: It is not installed; the message says what to type.
        """
        if sys.platform != "linux":
            raise SandboxError(
                "the sandbox needs Linux; use the service of a Linux machine, or --unsafe-local for your own code"
            )
        if (found := shutil.which("bwrap")) is None:
            raise SandboxError(f"bubblewrap is not installed: {installing(Path('/etc/os-release'))}")
        return found

    @property
    def alive(self) -> bool:
        return not self._broken and self._process.poll() is None

    @property
    def controllers(self) -> frozenset[str]:
        """By which the kernel counts whole runs."""
        return self._lent.controllers if self._lent else frozenset()

    async def ready(self) -> None:
        """Wait until it is warm.

        Raises:
            SandboxError: It did not start; the message says what this machine forbids.
        """
        loop = asyncio.get_running_loop()
        try:
            heard = await asyncio.wait_for(loop.sock_recv(self._host, 16), READY_SECONDS)
        except (TimeoutError, ConnectionError):
            heard = b""
        if heard != b"ready":
            self._process.kill()
            _, complaint = await asyncio.to_thread(self._process.communicate)
            raise SandboxError(diagnosis(complaint.decode(errors="replace").strip()))
        # What lies there is mounted by now, and a host that is killed could not clean up.
        shutil.rmtree(self._folder, ignore_errors=True)

    def give(self, channel: socket.socket, *, pytest: bool) -> bool:
        """Hand over the socket of a run; no when it is too busy this moment.

        Raises:
            SandboxError: It is gone.
        """
        try:
            socket.send_fds(self._for_pytest if pytest else self._host, [b"!"], [channel.fileno()])
        except BlockingIOError:
            return False
        except OSError as error:
            self._broken = True
            raise SandboxError("the sandbox ended; the next run starts another") from error
        return True

    def end(self) -> None:
        """With all its runs, leaving nothing behind."""
        self._host.close()
        self._for_pytest.close()
        self._process.kill()
        self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()
        if self._lent:
            self._lent.give_back()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _descent(self, uid: int | None, fd: int) -> dict[str, object]:
        made, stage = self._folder / "etc", self._folder / "stage"
        made.mkdir()
        stage.mkdir()
        binds = list(self._binds(made))
        places = {bind: str(stage / str(i)) if uid is not None else str(bind.source) for i, bind in enumerate(binds)}
        return {
            "command": self._command(places, fd),
            "groups": [str(path) for path in self._lent.join] if self._lent else [],
            "uid": uid,
            "stage": str(stage),
            "binds": [[str(bind.source), place] for bind, place in places.items()],
        }

    def _binds(self, made: Path) -> Iterator[Bind]:
        for name in SYSTEM:
            if (Path("/") / name).is_dir() and not (Path("/") / name).is_symlink():
                yield Bind(Path("/") / name, f"/{name}")
        own = self._interpreter
        for prefix in dict.fromkeys(map(straight, (own.base_prefix, own.prefix, *own.beside))):
            if not Path(prefix).is_relative_to("/usr"):
                yield Bind(Path(prefix), shown(prefix, own))
        for name, text in MADE.items():
            (made / name).write_text(text)
            yield Bind(made / name, f"/etc/{name}")
        for name in ETC:
            if (path := Path("/etc") / name).exists():
                yield Bind(path, f"/etc/{name}")
        yield Bind(PROGRAMS, PROGRAMS_WITHIN)
        for number, folder in enumerate(self._lent.folders if self._lent else ()):
            yield Bind(folder, f"{PLACE}/cgroup/{number}", writable=True)

    def _command(self, places: dict[Bind, str], fd: int) -> list[str]:
        words = [self.program(), "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        words += ["--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox", "--new-session", "--die-with-parent"]
        # The fork server builds the walls of each run; what runs within them has no capability at all.
        words += ["--cap-add", "ALL", "--clearenv"]
        for name, value in (("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", f"{PLACE}/home"), ("LANG", "C.UTF-8")):
            words += ["--setenv", name, value]
        for bind, place in places.items():
            words += ["--bind" if bind.writable else "--ro-bind", place, bind.target]
        for name in SYSTEM:
            if (link := Path("/") / name).is_symlink():
                words += ["--symlink", str(link.readlink()), f"/{name}"]
        words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", f"{PLACE}/shown"]  # noqa: S108
        words += ["--remount-ro", "/", "--remount-ro", "/dev"]
        return [
            *words,
            "--",
            shown(straight(self._interpreter.executable), self._interpreter),
            "-I",
            PROGRAMS_WITHIN,
            "fork_server",
            str(fd),
        ]


def straight(path: str) -> str:
    """The same without `..`, which leads nowhere where folders are missing. A link at the end stays: Python goes by it."""
    place = Path(path)
    if ".." not in place.parts:
        return path
    return str(place.resolve() if place.name == ".." else place.parent.resolve() / place.name)


def shown(path: str, interpreter: Interpreter = Interpreter()) -> str:  # noqa: B008 - frozen
    """Where in the sandbox a part of a Python is: where it is here, unless the run's own /tmp would hide it."""
    prefix = Path(straight(interpreter.prefix))
    if prefix.is_relative_to("/tmp") and Path(path).is_relative_to(prefix):  # noqa: S108
        return str(Path("/python") / Path(path).relative_to(prefix))
    for number, folder in enumerate(map(straight, interpreter.beside)):
        if Path(folder).is_relative_to("/tmp") and Path(path).is_relative_to(folder):  # noqa: S108
            return str(Path(f"/beside/{number}") / Path(path).relative_to(folder))
    return path


def unused_uid() -> int:
    """One that is nobody's, another for each process that asks."""
    taken = {user.pw_uid for user in pwd.getpwall()}
    free = [uid for uid in UIDS if uid not in taken]
    return free[os.getpid() % len(free)]


def installing(os_release: Path) -> str:
    """The command that installs bubblewrap on this distribution."""
    text = os_release.read_text() if os_release.exists() else ""
    named = [line.partition("=")[2].strip('"') for line in text.splitlines() if line.startswith(("ID=", "ID_LIKE="))]
    kinds = {word for line in named for word in line.split()}
    for command, names in (
        ("dnf install bubblewrap", {"fedora", "rhel", "centos"}),
        ("pacman -S bubblewrap", {"arch"}),
        ("zypper install bubblewrap", {"suse", "opensuse"}),
        ("apk add bubblewrap", {"alpine"}),
    ):
        if kinds & names:
            return command
    return "apt install bubblewrap"


def diagnosis(complaint: str) -> str:
    """Why bubblewrap did not start, and what to do."""
    switches = {
        "kernel/apparmor_restrict_unprivileged_userns": ("1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
        "user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=10000"),
        "kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
    }
    for name, (forbids, remedy) in switches.items():
        if (path := Path("/proc/sys") / name).exists() and path.read_text().strip() == forbids:
            return f"this machine forbids the namespaces bubblewrap needs: {remedy}, or use the landlock sandbox ({complaint})"
    if "ermitted" in complaint or "denied" in complaint:
        return (
            "bubblewrap was not permitted to make namespaces, as in a container without them: start it with "
            f"--security-opt seccomp=unconfined --cap-add SYS_ADMIN, or use the landlock sandbox ({complaint})"
        )
    return f"bubblewrap did not start: {complaint or 'it said nothing'}"
