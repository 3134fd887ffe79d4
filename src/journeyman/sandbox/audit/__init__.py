"""Ways out of a sandbox, tried on this machine. Each is harmless when it succeeds, and shown to succeed without walls."""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from journeyman.sandbox.audit import traps
from journeyman.sandbox.audit.traps import SMALL, Attack, AttackEvidence, Category, Trapping, Untried, token
from journeyman.sandbox.base import KIB, MIB, Level, Limits, Program, RunOutcome, Sandbox

__all__ = ["ATTACKS", "AttackVerdict", "AuditReport", "check", "judge", "program_of", "run_bare"]

# Every attack of the suite.


def _attack(category: Category, name: str, tried: str, probe: str, trap: Callable[[], Trapping], **more: Any) -> Attack:
    return Attack(name=name, tried=tried, category=category, probe=probe, trap=trap, **more)


_file = partial(_attack, "files")
_network = partial(_attack, "network")
_privilege = partial(_attack, "privileges")
_process = partial(_attack, "processes")
_resource = partial(_attack, "resources")

# Files of the host: reading them, writing them, and having them carried out.

FILE_ATTACKS = (
    _file(
        "/etc/shadow",
        "reads the password digests of the host",
        "read_privately",
        traps.existing("/etc/shadow"),
        privileged=True,
    ),
    _file("home folder", "reads from your home folder", "read", traps.secret_file(Path.home)),
    _file("project folder", "reads from the folder that journeyman was started in", "read", traps.secret_file(Path.cwd)),
    _file("temporary folder", "reads from the host's folder for temporary files", "read", traps.secret_file(traps.temporary)),
    _file("other users' files", "reads what another user left readable for everybody", "read", traps.foreign_file),
    _file("environment", "reads the host's environment, where keys are kept", "environment", traps.host_environment),
    _file("files left open", "reads files that were left open by whoever started it", "descriptors", traps.left_open),
    _file(
        "writing outside",
        "writes into the host's folders: temporary, home, project",
        "write",
        traps.new_files(traps.temporary, Path.home, Path.cwd),
    ),
    _file(
        "writing to the system",
        "writes into the folders of the system",
        "write",
        traps.new_files(lambda: Path("/usr/lib"), lambda: Path("/etc"), lambda: Path("/var"), lambda: Path("/")),
        privileged=True,
    ),
    _file("changing a file", "changes a file of the host that everybody may write to", "append", traps.writable_file),
    _file(
        "link to a file",
        "leaves a link to a secret, to be returned as a file of its own",
        "link_to_file",
        traps.secret_file(traps.temporary),
        collect=("*.out",),
    ),
    _file(
        "link to a folder",
        "leaves a link to a folder with a secret, to be returned as its own",
        "link_to_folder",
        traps.secret_file(traps.temporary),
        collect=("**/*.out", "*/*.out"),
    ),
    _file(
        "hard link",
        "leaves a second name of a secret file, to be returned as its own",
        "hard_link",
        traps.secret_file(traps.temporary),
        collect=("*.out",),
    ),
    _file(
        "fifo",
        "leaves a fifo, for which whoever fetches the files would wait for ever",
        "fifo",
        traps.fifo_file,
        collect=("*.out",),
    ),
    _file(
        "disk",
        "opens a disk past its file system",
        "disk",
        traps.existing("/dev/[svx]d[a-z]", "/dev/nvme*n*", "/dev/dm-*", "/dev/loop0"),
        privileged=True,
    ),
    _file("device file", "makes itself a device file for a disk", "device", traps.whole_disk, privileged=True),
    _file(
        "settings of the kernel",
        "opens settings of the kernel in /proc for writing",
        "open_for_writing",
        traps.existing("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname"),
        privileged=True,
    ),
    _file(
        "settings in /sys",
        "opens settings of the machine in /sys for writing",
        "open_for_writing",
        traps.existing(
            "/sys/kernel/mm/*/enabled", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/*/cgroup.procs"
        ),
        privileged=True,
    ),
    _file("terminal", "writes on the user's terminal and types into it", "terminal", traps.terminal),
)

# Out to the host, or further.

NETWORK_ATTACKS = (
    _network("TCP", "connects to a server on the host's loopback", "tcp", traps.listener),
    _network("UDP", "sends a datagram to a server on the host's loopback", "udp", partial(traps.listener, socket.SOCK_DGRAM)),
    _network(
        "DNS", "asks a name server, with what it wants to tell as the name", "dns", partial(traps.listener, socket.SOCK_DGRAM)
    ),
    _network(
        "unix socket",
        "connects to a server of the host by a path",
        "unix_socket",
        partial(traps.listener, family=socket.AF_UNIX),
    ),
    _network(
        "abstract unix socket",
        "connects to a server of the host by a name that is no path",
        "abstract_socket",
        partial(traps.listener, family=socket.AF_UNIX, abstract=True),
    ),
    _network("vsock", "opens a socket to the hypervisor", "vsock", traps.vsock),
    _network(
        "raw packets",
        "sends what it likes, past the rules for ports",
        "packets",
        partial(traps.listener, socket.SOCK_DGRAM),
        privileged=True,
    ),
    _network(
        "io_uring", "has the kernel make its calls, past a filter of calls", "io_uring", traps.own_word(), privileged=True
    ),
)

# Rights that the code was not given; it can tell itself that one was granted.

PRIVILEGE_ATTACKS = (
    _privilege(
        "user namespace (unshare)",
        "makes a user namespace, to have every capability in it",
        "unshare_user",
        traps.own_word(),
        privileged=True,
    ),
    _privilege("user namespace (clone)", "starts a child in a user namespace", "clone_user", traps.own_word(), privileged=True),
    _privilege(
        "user namespace (clone3)",
        "the same by the newer call, whose arguments a filter cannot see",
        "clone3_user",
        traps.own_word(),
        privileged=True,
    ),
    _privilege(
        "setuid programs",
        "starts programs that run as root whoever starts them",
        "set_user_id",
        traps.existing("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp", "/bin/su"),
    ),
    _privilege(
        "new privileges",
        "asks whether programs that it starts may gain privileges",
        "new_privileges",
        traps.own_word(),
        privileged=True,
    ),
    _privilege("capabilities", "looks for capabilities that it was left", "capabilities", traps.own_word(), privileged=True),
    _privilege("becoming root", "sets its user to root", "become_root", traps.own_word(), privileged=True),
    _privilege("mount", "mounts a file system", "mount", traps.own_word(), privileged=True),
    _privilege(
        "mount by descriptor",
        "opens a file system to mount it, by newer calls",
        "mount_by_descriptor",
        traps.own_word(),
        privileged=True,
    ),
    _privilege("chroot", "changes its root folder", "change_root", traps.own_word(), privileged=True),
    _privilege(
        "pivot_root", "makes a namespace for mounts, to swap the root in it", "pivot_root", traps.own_word(), privileged=True
    ),
    _privilege("name of the machine", "sets the name of the machine", "host_name", traps.own_word(), privileged=True),
    _privilege("bpf", "loads what runs in the kernel", "programs_in_the_kernel", traps.own_word(), privileged=True),
    _privilege(
        "userfaultfd",
        "handles page faults, by which races in the kernel are won",
        "page_faults",
        traps.own_word(),
        privileged=True,
    ),
    _privilege("perf", "opens performance counters, a clock for side channels", "counters", traps.own_word(), privileged=True),
)

# Processes of the host, and other runs.

PROCESS_ATTACKS = (
    _process("environment of a process", "reads the environment of the host's processes", "files.environment", traps.victim),
    _process(
        "memory of a process", "reads the memory of a process of the host by a system call", "memory_by_call", traps.victim
    ),
    _process(
        "memory of a process by /proc", "reads the memory of a process of the host as a file", "memory_by_file", traps.victim
    ),
    _process("ptrace", "takes hold of a process of the host as a debugger does", "trace", traps.victim),
    _process("signals", "ends a process of the host", "signals", traps.victim),
    _process("signals by descriptor", "ends a process of the host by a pidfd", "signal_by_descriptor", traps.victim),
    _process(
        "settings of a process",
        "makes the kernel end a process of the host first when memory is short",
        "disturb",
        traps.victim,
    ),
    _process("daemon", "leaves a process behind that left the session and its parents", "daemon", traps.survivors),
    _process("reading another run", "reads what another run wrote, while both run", "seek", traps.neighbour, beside="hide"),
    _process("ending another run", "ends another run, while both run", "stab", traps.neighbour, beside="hide"),
    _process("keyring", "reads a key of the host from the kernel's keyring", "keys", traps.kernel_key),
)

_MORE = replace(
    SMALL, processes=56, memory=320 * MIB, file_size=8 * MIB, disk=48 * MIB, inodes=3000, open_files=250, output=256 * KIB
)
"""The control of the greedy ones: enough for their goal."""

# More than was granted.

RESOURCE_ATTACKS = (
    _resource(
        "fork bomb",
        "forks until it is stopped, and leaves the children behind",
        "fork_bomb",
        traps.fork_bomb(SMALL.processes, goal=48),
        lifted=_MORE,
        alone=True,
    ),
    _resource(
        "thread bomb",
        "starts threads until it is stopped",
        "thread_bomb",
        traps.further_than(SMALL.processes, "threads", goal=48),
        lifted=_MORE,
    ),
    _resource(
        "memory of one process",
        "takes more memory than it was granted",
        "memory",
        traps.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "memory of many processes",
        "takes more memory than it was granted, a share in each of several processes",
        "memory_of_many",
        traps.further_than(2 * SMALL.memory, "bytes", children=5, share=48 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "shared memory",
        "takes more memory than it was granted, in pages that belong to no process alone",
        "memory_shared",
        traps.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "memory files",
        "takes more memory than it was granted, in files without a folder (memfd)",
        "memory_file",
        traps.further_than(2 * SMALL.memory, "bytes", goal=240 * MIB),
    ),
    _resource(
        "one big file",
        "writes a file bigger than any may be",
        "big_file",
        traps.further_than(SMALL.file_size, "bytes", goal=6 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "many files",
        "writes more to the disk than it was granted, in files that are each small enough",
        "many_files",
        traps.further_than(2 * SMALL.disk, "bytes", goal=32 * MIB),
        lifted=_MORE,
    ),
    _resource(
        "many inodes",
        "makes more empty files and folders than it was granted",
        "many_inodes",
        traps.further_than(2 * SMALL.inodes, "files and folders", goal=2000),
        lifted=_MORE,
    ),
    _resource(
        "/dev/shm",  # noqa: S108 - a name
        "fills the memory that is mounted as a folder",
        "shared_memory_folder",
        traps.shared_memory_folder,
    ),
    _resource(
        "open files",
        "opens more files than it was granted",
        "open_files",
        traps.further_than(SMALL.open_files, "open files", goal=200),
        lifted=_MORE,
    ),
    _resource("endless output", "prints more than anybody wants to keep", "output", traps.endless_output, lifted=_MORE),
    _resource(
        "endless loop",
        "goes on after its time is over",
        "endless",
        traps.further_than(1.5, "seconds"),
        limits=replace(SMALL, wall_seconds=0.8),
        lifted=replace(SMALL, wall_seconds=2.5),
        alone=True,
    ),
    _resource(
        "CPU in many processes",
        "burns more CPU than it was granted, a share in each of several processes",
        "cpu_of_many",
        traps.further_than(1.2, "seconds of CPU", children=4, share=0.5),
        limits=replace(SMALL, cpu_seconds=0.6),
        lifted=SMALL,
        alone=True,
    ),
    _resource("left-over shared memory", "leaves System V shared memory behind", "leftover_segment", traps.segment),
)

ATTACKS: tuple[Attack, ...] = (*RESOURCE_ATTACKS, *NETWORK_ATTACKS, *FILE_ATTACKS, *PROCESS_ATTACKS, *PRIVILEGE_ATTACKS)

# What came of the attacks.

State = Literal["stopped", "through", "unproven", "untried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackVerdict:
    """What came of one attack."""

    attack: Attack
    state: State
    """`unproven`: the probe gets through nowhere, so that it did not here proves nothing. `untried`: this machine has no such
    thing, or not even root's own process may do it."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What came of them all."""

    level: Level
    verdicts: tuple[AttackVerdict, ...] = field(default=())

    @property
    def stopped(self) -> int:
        return sum(verdict.state == "stopped" for verdict in self.verdicts)

    @property
    def total(self) -> int:
        """Of those that could be tried here."""
        return sum(verdict.state != "untried" for verdict in self.verdicts)

    @property
    def not_stopped(self) -> tuple[AttackVerdict, ...]:
        """Those that got through, and those that prove nothing."""
        return tuple(verdict for verdict in self.verdicts if verdict.state in ("through", "unproven"))

    @property
    def untried(self) -> tuple[AttackVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.state == "untried")

    def as_json(self) -> dict[str, Any]:
        return {
            "stopped": self.stopped,
            "total": self.total,
            "not_stopped": [
                {"name": verdict.attack.name, "tried": verdict.attack.tried, "why": verdict.why} for verdict in self.not_stopped
            ],
            "untried": [{"name": verdict.attack.name, "why": verdict.why} for verdict in self.untried],
            "level": {"name": self.level.name, "holds": list(self.level.holds), "lacks": list(self.level.lacks)},
        }


# No walls at all: a plain subprocess that shows whether a probe gets through where nothing stops it.

NONE = Level("none")
READ_SECONDS = 1.0


async def run_bare(program: Program) -> RunOutcome:
    """Run Python code with no more care than a beginner's: files are fetched wherever a link leads.

    Only for the probes of this suite, which are bounded by themselves.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, content in program.files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        Path(folder, "main.py").write_text(program.code)
        command = [sys.executable, "-S", "-B", "main.py", *program.arguments]
        start = time.monotonic()
        code, out, err = await _run(command, folder, program.limits.wall_seconds)
        fetched = [await _fetch(path) for pattern in program.collect for path in sorted(Path(folder).glob(pattern))]
        return RunOutcome(
            level=NONE,
            exit_code=code,
            limit=None if None not in fetched else "wall",
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            files={str(number): content for number, content in enumerate(fetched) if content is not None},
            wall_seconds=time.monotonic() - start,
        )


async def _run(command: list[str], folder: str, seconds: float) -> tuple[int | None, bytes, bytes]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        close_fds=False,
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        out, err = b"", b""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return await process.wait(), out, err


async def _fetch(path: Path) -> bytes | None:
    """What a reader gets, or `None` when it waits for ever."""
    process = await asyncio.create_subprocess_exec(
        "cat", str(path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        return (await asyncio.wait_for(process.communicate(), READ_SECONDS))[0]
    except TimeoutError:
        process.kill()
        await process.wait()
        return None


# Attacks a sandbox, and says what got through.

AT_ONCE = 3
LATE_SECONDS = 30.0
"""After its time is over, in which a run must come back: one that does not has taken its sandbox with it."""
MEETINGS = 4
"""Tries of two runs to be there at the same time."""
PLANTED = "JOURNEYMAN_SECRET_OF_THE_HOST"
_MAIN = "from probes import main\nmain()\n"


async def check(
    sandbox: Sandbox, attacks: Sequence[Attack] = ATTACKS, *, progress: Callable[[AttackVerdict], None] | None = None
) -> AuditReport:
    """Try every attack within the sandbox, and without walls where that is its control.

    The sandbox is started here, if it was not: what its own processes inherit is then looked at, too.

    Raises:
        SandboxError: The sandbox could not run something.
    """
    with _planted():
        await sandbox.start()
        verdicts = {verdict.attack.name: verdict async for verdict in _verdicts(sandbox, attacks, progress)}
    return AuditReport(sandbox.level, tuple(verdicts[attack.name] for attack in attacks))


@contextmanager
def _planted() -> Iterator[None]:
    """At least one secret is in the environment."""
    os.environ[PLANTED] = token()
    try:
        yield
    finally:
        del os.environ[PLANTED]


async def _verdicts(
    sandbox: Sandbox, attacks: Sequence[Attack], progress: Callable[[AttackVerdict], None] | None
) -> AsyncIterator[AttackVerdict]:
    few = asyncio.Semaphore(AT_ONCE)

    async def one(attack: Attack) -> AttackVerdict:
        async with few:
            return await judge(sandbox, attack)

    together = [asyncio.create_task(one(attack)) for attack in attacks if not attack.alone]
    try:
        for done in asyncio.as_completed(together):
            verdict = await done
            if progress:
                progress(verdict)
            yield verdict
        for attack in [attack for attack in attacks if attack.alone]:
            verdict = await judge(sandbox, attack)
            if progress:
                progress(verdict)
            yield verdict
    finally:
        for task in together:
            task.cancel()


async def judge(sandbox: Sandbox, attack: Attack) -> AttackVerdict:
    """Try one attack within, and its control.

    Raises:
        SandboxError: The sandbox could not run it.
    """
    try:
        did, seen = await _try(sandbox.run, attack, attack.limits)
        if did:
            return AttackVerdict(attack=attack, state="through", why=did)
        if not seen.reported("trying"):
            return AttackVerdict(attack=attack, state="unproven", why=f"the attack did not even start: {_end(seen.outcome)}")
        works, free = await _control(sandbox, attack)
    except Untried as error:
        return AttackVerdict(attack=attack, state="untried", why=str(error))
    except TimeoutError:
        return AttackVerdict(attack=attack, state="through", why="the sandbox did not come back in its time")
    if works:
        return AttackVerdict(attack=attack, state="stopped", why=_refusal(seen))
    state: State = "untried" if attack.privileged else "unproven"
    where = "with more granted" if attack.lifted else "without walls"
    return AttackVerdict(attack=attack, state=state, why=f"it fails {where}, too: {_refusal(free) or _end(free.outcome)}")


_Run = Callable[[Program], Awaitable[RunOutcome]]


async def _control(sandbox: Sandbox, attack: Attack) -> tuple[str | None, AttackEvidence]:
    """The same where it ought to get through. On a busy machine two runs can miss each other, so those may try again."""
    if attack.lifted:
        return await _try(sandbox.run, attack, attack.lifted)
    for _ in range(MEETINGS if attack.beside else 1):
        works, free = await _try(run_bare, attack, attack.limits)
        if works:
            break
    return works, free


async def _try(run: _Run, attack: Attack, limits: Limits) -> tuple[str | None, AttackEvidence]:
    """What it did, if anything, and what was seen of it. Setting a trap is quick, so it is set right here."""
    with attack.trap() as trap:
        program = program_of(attack, attack.probe, trap.bait, limits)
        programs = [program]
        if attack.beside is not None:
            programs.append(program_of(attack, attack.beside, trap.bait, limits))
        async with asyncio.timeout(limits.wall_seconds + LATE_SECONDS):
            outcomes = await asyncio.gather(*map(run, programs))
        seen = AttackEvidence(outcome=outcomes[0], beside=outcomes[-1] if attack.beside else None)
        return trap.sprung(seen), seen


def program_of(attack: Attack, probe: str, bait: Mapping[str, Any], limits: Limits) -> Program:
    """A probe as a program: all probes lie beside it, and it is told which one to be."""
    room, _, name = probe.rpartition(".")
    arguments = (room or attack.category, name, json.dumps(bait))
    return Program(code=_MAIN, files=_probes(), arguments=arguments, limits=limits, collect=attack.collect)


@cache
def _probes() -> Mapping[str, bytes]:
    here = Path(__file__).with_name("probes")
    return {f"probes/{path.name}": path.read_bytes() for path in here.glob("*.py")}


def _refusal(seen: AttackEvidence) -> str:
    if seen.outcome.limit:
        return f"limit on {seen.outcome.limit}"
    return next(iter(seen.reported("refused")), "")


def _end(outcome: RunOutcome) -> str:
    last = outcome.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    how = outcome.signal or f"exit code {outcome.exit_code}"
    return f"{how}, {last[0]}"
