"""What the suite sets up on the host for one attack, and takes away again. Every secret is made for the run that seeks it."""

import ctypes
import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from journeyman.io.processes import running
from journeyman.sandbox.base import KIB, MIB, Limits, RunOutcome
from journeyman.sandbox.inside import files as inside_files

# The words of the suite: an attack, and the trap that proves it.

Category = Literal["resources", "network", "files", "processes", "privileges", "channels"]

SMALL = Limits(
    cpu_seconds=3,
    wall_seconds=20,
    memory=96 * MIB,
    processes=24,
    file_size=2 * MIB,
    disk=8 * MIB,
    inodes=512,
    open_files=64,
    output=16 * KIB,
)
"""What an attack is granted: little, so that the whole suite takes seconds. Time is not: a busy machine is no wall."""


class Untried(Exception):
    """This machine does not have what the attack needs. Says what that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackEvidence:
    """What there is to judge by."""

    outcome: RunOutcome
    beside: RunOutcome | None = None
    """Of the run beside it, where there was one."""

    @property
    def words(self) -> list[dict[str, Any]]:
        """What the probe said, line by line."""
        lines = [line for line in self.outcome.stdout.splitlines() if line.startswith("{")]
        return [word for line in lines if isinstance(word := _parsed(line), dict)]

    def reported(self, key: str) -> list[Any]:
        """Every value that the probe gave to a key."""
        return [word[key] for word in self.words if key in word]

    @property
    def reached(self) -> float:
        """How far a greedy probe came, in the unit of its limit."""
        return float(max(self.reported("reached"), default=0) + sum(self.reported("more")))


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Trap:
    """What is set up on the host before the attack, and shows afterwards whether it succeeded."""

    bait: Mapping[str, Any]
    """What the probe is told; JSON."""
    sprung: Callable[[AttackEvidence], str | None]
    """What the attack did, or `None` when it did nothing. Looks at the host wherever the host can show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One way out, and how to know whether it is open."""

    name: str
    tried: str
    """What it does, as the end of a sentence that begins with "the code"."""
    category: Category
    probe: str
    """Of the file `probes/<category>.py`, unless it says `file.function`."""
    trap: Callable[[], AbstractContextManager[Trap]]
    limits: Limits = SMALL
    lifted: Limits | None = None
    """The control of an attack on a limit: with more granted, the same probe must get further. `None`: the control is the same
    probe without any walls."""
    privileged: bool = False
    """Without walls only root can do it, so where the control fails there is nothing to be stopped."""
    alone: bool = False
    """Nothing else runs meanwhile: it would be disturbed, or disturb."""
    collect: tuple[str, ...] = ()
    beside: str | None = None
    """The probe of a second run that is there at the same time."""


# The traps.

TIMEOUT = 5.0
PREFIX = "journeyman-attack-"
HARMLESS = frozenset({"PATH", "LANG", "LC_ALL", "TERM", "PWD", "SHELL", "SHLVL", "TZ", "_", "PYTHONDONTWRITEBYTECODE"})
"""Of an environment: these say nothing about who you are."""

Trapping = AbstractContextManager[Trap]


def token() -> str:
    return "jm" + secrets.token_hex(6)


def own_word(**bait: Any) -> Callable[[], Trapping]:
    """What only the code itself can see: it says what it gained."""

    @contextmanager
    def trap() -> Iterator[Trap]:
        yield Trap(bait, _through)

    return trap


def existing(*paths: str) -> Callable[[], Trapping]:
    """Paths of this machine that are to be opened, as far as there are any."""

    @contextmanager
    def trap() -> Iterator[Trap]:
        found = [str(path) for pattern in paths for path in sorted(Path("/").glob(pattern.lstrip("/")))[:4]]
        if not found:
            raise Untried(f"there is no {' or '.join(paths)} here")
        yield Trap({"paths": found, "path": found[0]}, _through)

    return trap


def _through(seen: AttackEvidence) -> str | None:
    return next(iter(seen.reported("through")), None)


def secret_file(folder: Callable[[], Path], **bait: Any) -> Callable[[], Trapping]:
    """A file that everybody may read, in a folder of the host."""

    @contextmanager
    def trap() -> Iterator[Trap]:
        with _folder(folder()) as place:
            secret = token()
            path = place / "secret.out"
            path.write_text(secret)
            yield Trap(bait | {"paths": [str(path)], "path": str(path)}, shows(secret))

    return trap


def shows(secret: str) -> Callable[[AttackEvidence], str | None]:
    def sprung(seen: AttackEvidence) -> str | None:
        if secret in "".join(str(value) for value in seen.reported("read")):
            return "read what was hidden"
        if any(secret.encode() in content for content in seen.outcome.files.values()):
            return "what was hidden came back as a file of its own"
        return None

    return sprung


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    try:
        place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        raise Untried(f"nothing can be written to {parent}: {error.strerror}") from error
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def temporary() -> Path:
    return Path(tempfile.gettempdir())


@contextmanager
def foreign_file() -> Iterator[Trap]:
    """Somebody else's: another user's where we may give it away."""
    with secret_file(lambda: Path("/var/tmp"))() as trap:  # noqa: S108 - where other users' files lie
        with suppress(OSError):
            os.chown(trap.bait["path"], 12345, 12345)
        yield trap


@contextmanager
def writable_file() -> Iterator[Trap]:
    """A file of the host that everybody may write to."""
    with _folder(temporary()) as place:
        path = place / "diary"
        path.write_text("dear diary")
        path.chmod(0o666)
        yield Trap({"path": str(path)}, lambda _: "changed a file of the host" if path.read_text() != "dear diary" else None)


def new_files(*folders: Callable[[], Path]) -> Callable[[], Trapping]:
    """Folders of the host, in which no file may appear."""

    @contextmanager
    def trap() -> Iterator[Trap]:
        name = token()
        places = [folder() for folder in folders]

        def sprung(_: AttackEvidence) -> str | None:
            made = [str(place) for place in places if (place / name).exists()]
            return f"wrote into {', '.join(made)}" if made else None

        try:
            yield Trap({"folders": [str(place) for place in places], "name": name}, sprung)
        finally:
            for place in places:
                (place / name).unlink(missing_ok=True)

    return trap


@contextmanager
def listener(kind: int = socket.SOCK_STREAM, family: int = socket.AF_INET, *, abstract: bool = False) -> Iterator[Trap]:
    """A server of the host, which must hear nothing."""
    said = token()
    with _folder(temporary()) as place, socket.socket(family, kind) as server:
        path = said if abstract else str(place / "socket")
        server.bind((path if not abstract else "\0" + path) if family == socket.AF_UNIX else ("127.0.0.1", 0))
        bait: dict[str, Any] = {"token": said, "path": path, "addresses": ["127.0.0.1", "localhost"]}
        if family == socket.AF_UNIX:
            if not abstract:
                Path(path).chmod(0o777)
        else:
            bait["port"] = server.getsockname()[1]
        if kind == socket.SOCK_STREAM:
            server.listen()
        yield Trap(bait, lambda _: _heard(server, kind))


def _heard(server: socket.socket, kind: int) -> str | None:
    """Anything at all, also an empty connection."""
    if not select.select([server], [], [], 0.05)[0]:
        return None
    if kind == socket.SOCK_STREAM:
        server.accept()[0].close()
    return "the host's listener heard it"


@contextmanager
def fifo_file() -> Iterator[Trap]:
    def sprung(seen: AttackEvidence) -> str | None:
        return "whoever fetches the files waits for ever" if seen.outcome.limit == "wall" else None

    yield Trap({}, sprung)


@contextmanager
def terminal() -> Iterator[Trap]:
    """A terminal that everybody may write to."""
    said = token()
    try:
        ours, theirs = os.openpty()
    except OSError as error:
        raise Untried(f"no terminal can be made here: {error.strerror}") from error
    try:
        path = os.ttyname(theirs)
        with suppress(OSError):
            Path(path).chmod(0o666)

        def sprung(_: AttackEvidence) -> str | None:
            return "wrote on the user's terminal" if select.select([ours], [], [], 0.05)[0] else None

        yield Trap({"path": path, "token": said}, sprung)
    finally:
        os.close(ours)
        os.close(theirs)


@contextmanager
def left_open() -> Iterator[Trap]:
    """A file that this process holds open, and passes on to programs that it starts carelessly."""
    secret = token()
    with tempfile.TemporaryFile() as file:
        file.write(secret.encode())
        file.flush()
        os.set_inheritable(file.fileno(), True)
        yield Trap({}, shows(secret))


@contextmanager
def whole_disk() -> Iterator[Trap]:
    """The device of the first disk that the kernel knows."""
    table = Path("/proc/partitions")
    rows = [line.split() for line in table.read_text().splitlines()[2:]] if table.exists() else []
    if not rows:
        raise Untried("this machine shows no disk")
    yield Trap({"device": [int(rows[0][0]), int(rows[0][1])]}, _through)


@contextmanager
def vsock() -> Iterator[Trap]:
    """Needs no listener: what listens there is the hypervisor."""
    try:
        socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    except OSError as error:
        raise Untried(f"this kernel has no vsock: {error.strerror}") from error
    yield Trap({}, _through)


# Traps that need a process: one to be attacked, one that must not be there any more, or how far one came.


def further_than(most: float, unit: str, **bait: Any) -> Callable[[], Trapping]:
    """A limit: how far the code came, with some room for what a watcher sees late."""

    def sprung(seen: AttackEvidence) -> str | None:
        return f"came to {seen.reached:g} {unit}, and {most:g} is the most that may be" if seen.reached > most else None

    @contextmanager
    def trap() -> Iterator[Trap]:
        yield Trap(bait, sprung)

    return trap


@contextmanager
def endless_output() -> Iterator[Trap]:
    most = 2 * 16 * 1024

    def sprung(seen: AttackEvidence) -> str | None:
        kept = len(seen.outcome.stdout)
        return f"{kept} bytes of output were kept" if kept > most else None

    yield Trap({"goal": 1024 * 1024}, sprung)


@contextmanager
def shared_memory_folder() -> Iterator[Trap]:
    """The folder in which a file is memory that is on nobody's account."""
    shared, name = Path("/dev/shm"), token()  # noqa: S108 - the very folder that is guarded
    most = 2 * 8 * 1024 * 1024

    def sprung(seen: AttackEvidence) -> str | None:
        on_host = any(shared.glob(f"{name}*"))
        if seen.reached > most or on_host:
            return f"wrote {seen.reached:g} bytes to /dev/shm{', of the host' if on_host else ''}"
        return None

    if not shared.is_dir():
        raise Untried("there is no /dev/shm here")
    try:
        yield Trap({"goal": 3 * 8 * 1024 * 1024, "name": name}, sprung)
    finally:
        for left in shared.glob(f"{name}*"):
            left.unlink(missing_ok=True)


_VICTIM = """
import ctypes, os, sys, time
secret = ctypes.create_string_buffer(sys.stdin.readline().strip().encode(), 32)
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0)
print(ctypes.addressof(secret), flush=True)
time.sleep(20)
"""
"""Lets every process trace it (where Yama asks for that): it is the walls that are to forbid it."""


@contextmanager
def victim() -> Iterator[Trap]:
    """A process of the host, with a secret in its environment and another in its memory."""
    secret, adjust = token(), "321"
    environment = {"PATH": os.defpath, "JOURNEYMAN_SECRET": secret}
    command = [sys.executable, "-I", "-S", "-c", _VICTIM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{secret}\n")
        process.stdin.flush()
        bait = {"pid": process.pid, "address": int(process.stdout.readline()), "size": 32, "value": adjust}

        def sprung(seen: AttackEvidence) -> str | None:
            if process.poll() is not None:
                return "a process of the host was ended"
            if Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip() == adjust:
                return "a setting of a process of the host was changed"
            digest = sha256(f"JOURNEYMAN_SECRET={secret}".encode()).hexdigest()
            return "read its environment" if digest in seen.reported("digest") else shows(secret)(seen)

        try:
            yield Trap(bait, sprung)
        finally:
            process.kill()


@contextmanager
def host_environment() -> Iterator[Trap]:
    """The variables of this very process: none that says anything may be seen."""

    def sprung(seen: AttackEvidence) -> str | None:
        digests = set(seen.reported("digest"))
        telling = {name: f"{name}={value}" for name, value in os.environ.items() if name not in HARMLESS and value}
        found = [name for name, entry in telling.items() if sha256(entry.encode()).hexdigest() in digests]
        return f"read {', '.join(sorted(found)[:5])} of the host's environment" if found else None

    yield Trap({}, sprung)


@contextmanager
def survivors(**bait: Any) -> Iterator[Trap]:
    """Processes that still run on the host when the run is over."""
    name = token()

    def sprung(_: AttackEvidence) -> str | None:
        left = named(name)
        return f"{len(left)} of its processes run on" if left else None

    try:
        yield Trap(bait | {"name": name}, sprung)
    finally:
        for pid in named(name):
            with suppress(OSError):
                os.kill(pid, 9)


def named(name: str) -> list[int]:
    """Every process of that name that still runs."""
    found = []
    for pid in running():
        with suppress(OSError):
            head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            if head.partition("(")[2] == name and rest.split()[0] not in "ZX":
                found.append(pid)
    return found


def fork_bomb(most: int, goal: int) -> Callable[[], Trapping]:
    @contextmanager
    def trap() -> Iterator[Trap]:
        with survivors(goal=goal) as left, further_than(most, "processes")() as bound:
            yield Trap(left.bait, lambda seen: bound.sprung(seen) or left.sprung(seen))

    return trap


@contextmanager
def neighbour() -> Iterator[Trap]:
    """Another run, with a secret in its folders."""
    secret, name = token(), token()

    def sprung(seen: AttackEvidence) -> str | None:
        beside = AttackEvidence(outcome=seen.beside) if seen.beside else None
        if beside and not beside.reported("unharmed"):
            return "the run beside it was ended"
        return shows(secret)(seen)

    yield Trap({"name": name, "token": secret, "seconds": 1.5}, sprung)


@contextmanager
def deep_folders() -> Iterator[Trap]:
    """Nothing of it may stay in the folder for temporary files."""
    name = token()

    def left() -> list[Path]:
        return [path for pattern in (f"*/{name}", f"*/*/{name}") for path in temporary().glob(pattern)]

    try:
        yield Trap({"name": name, "goal": 1500}, lambda _: "its folders stay" if left() else None)
    finally:
        for path in left():
            inside_files.remove(str(temporary() / path.relative_to(temporary()).parts[0]))


# Traps for what goes from one run to the next: files that every sandbox shows, and what the kernel tells of the whole machine.


def readable(number: int, *, ours: bool = False) -> str:
    """A file that code may read in every sandbox, with others for other numbers: of this Python. `ours` where we own it."""
    files = sorted(path for path in Path(os.__file__).parent.glob("*.py") if path.stat().st_size > 4096)
    if ours:
        files = [path for path in files if path.stat().st_uid == os.geteuid()]
    if not files:
        raise Untried("no file of this Python is yours")
    return str(files[number % len(files)])


def shared_file(number: int, *, ours: bool = False) -> Callable[[], Trapping]:
    @contextmanager
    def trap() -> Iterator[Trap]:
        yield Trap({"path": readable(number, ours=ours)}, _through)

    return trap


@contextmanager
def another_run() -> Iterator[Trap]:
    """A run beside it, that holds what the code is to find."""
    size = [secrets.randbelow(30000) + 1000, secrets.randbelow(30000) + 1000]
    number = secrets.randbelow(1000)
    yield Trap({"flocked": readable(number), "locked": readable(number + 1), "size": size, "seconds": 1.5}, _through)


@contextmanager
def dates() -> Iterator[Trap]:
    """Of a device, and of a file that everybody may write to."""
    with writable_file() as trap:
        paths = [trap.bait["path"], os.devnull]

        def seen() -> list[int]:
            return [Path(path).stat().st_mtime_ns for path in paths]

        before = seen()
        yield Trap({"paths": paths}, lambda _: "left a date on a file of the host" if seen() != before else None)


@contextmanager
def mounts() -> Iterator[Trap]:
    """What lies below the root of the host, as every list of mounts names it."""
    paths = [
        "/proc/self/mountinfo",
        "/proc/self/mounts",
        "/proc/self/mountstats",
        "/proc/1/mountinfo",
        "/proc/thread-self/mounts",
    ]
    row = next(line.split() for line in Path("/proc/self/mounts").read_text().splitlines() if line.split()[1] == "/")

    def sprung(seen: AttackEvidence) -> str | None:
        told = " ".join(seen.reported("told")).split()
        return f"read that {row[0]} is mounted" if row[0] in told or row[3] in told else None

    yield Trap({"paths": paths}, sprung)


@contextmanager
def command_line() -> Iterator[Trap]:
    """Of the kernel, and of the first process of the host."""
    paths = ["/proc/cmdline", "/proc/1/cmdline", "/proc/bootconfig"]
    secret = {text for path in paths if Path(path).exists() and (text := Path(path).read_text(encoding="latin-1"))}
    if not secret:
        raise Untried("the kernel was started without a command line")
    yield Trap(
        {"paths": paths}, lambda seen: "read a command line of the host" if secret & set(seen.reported("told")) else None
    )


COUNTERS = (
    "stat", "uptime", "loadavg", "meminfo", "vmstat", "zoneinfo", "interrupts", "softirqs", "diskstats", "schedstat",
    "buddyinfo", "slabinfo", "timer_list", "pressure/cpu", "sys/fs/dentry-state", "sys/fs/inode-state", "sys/fs/file-nr",
)  # fmt: skip


@contextmanager
def segment() -> Iterator[Trap]:
    """Shared memory of the kind that stays when its maker is gone."""
    key = secrets.randbelow(2**30) + 1
    table = Path("/proc/sysvipc/shm")
    if not table.exists():
        raise Untried("this kernel has no System V shared memory")

    def found() -> list[int]:
        return [int(row.split()[1]) for row in table.read_text().splitlines()[1:] if int(row.split()[0]) == key]

    try:
        yield Trap({"key": key}, lambda _: "memory of its stayed when it was gone" if found() else None)
    finally:
        for left in found():
            ctypes.CDLL(None).shmctl(left, 0, None)


@contextmanager
def kernel_key() -> Iterator[Trap]:
    """A key in the kernel's keyring, which everybody may read who knows its number."""
    secret = token()
    libc = ctypes.CDLL(None, use_errno=True)
    add, control = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
    key = libc.syscall(add, b"user", secret.encode(), secret.encode(), ctypes.c_ulong(len(secret)), ctypes.c_int(-2))
    if key < 0:
        raise Untried(f"no key can be added here: {os.strerror(ctypes.get_errno())}")
    libc.syscall(control, ctypes.c_int(5), ctypes.c_int(key), ctypes.c_uint(0x3F3F3F3F))
    try:
        yield Trap({"key": key}, shows(secret))
    finally:
        libc.syscall(control, ctypes.c_int(3), ctypes.c_int(key))
