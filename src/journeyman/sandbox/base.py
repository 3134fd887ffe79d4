"""What runs code that nobody trusts: a program in, what happened out.

Code that fails is a result; only a sandbox that fails is an error.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from journeyman.core.errors import InputError

KIB = 1024
MIB = 1024 * KIB

Limit = Literal["cpu", "wall", "memory", "processes", "file_size", "disk", "inodes", "open_files", "output"]
"""What a run can be stopped by, or be refused more of."""

Tool = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Called with the arguments by name (positional ones under "0", "1", …), all of them JSON; gives JSON back. What it raises is
raised in the code as a `ToolError` with its message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use. Sizes in bytes, times in seconds."""

    cpu_seconds: float = 10.0
    """Of the whole tree of processes."""
    wall_seconds: float = 20.0
    memory: int = 512 * MIB
    """Of the whole tree, with what lies in its temporary files."""
    processes: int = 64
    """At once, threads included."""
    file_size: int = 16 * MIB
    """Of one file."""
    disk: int = 64 * MIB
    """All files together."""
    inodes: int = 4096
    """Files and folders together."""
    open_files: int = 256
    """Of one process."""
    output: int = 64 * KIB
    """Kept of stdout, and as much of stderr. Of more the beginning and the end stay, with a marker between; the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The Python that runs code, with the packages that the code may import: this one, or that of a virtual environment."""

    executable: str = sys.executable
    prefix: str = sys.prefix
    """Where its own packages are."""
    base_prefix: str = sys.base_prefix
    """Where its standard library is."""
    beside: tuple[str, ...] = ()
    """Further folders that code may read, such as the virtual environment of an agent that is no part of what it works on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run."""

    code: str = ""
    """The source. It is run as the main program in a working folder of its own."""
    language: str = "python"
    """A name from `LANGUAGES`: python, pytest (the code is a file of tests), shell, javascript."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What lies in the working folder, by relative path."""
    stdin: bytes = b""
    arguments: tuple[str, ...] = ()
    """Of the program, after its name; for pytest its options."""
    limits: Limits = Limits()
    collect: tuple[str, ...] = ()
    """Glob patterns, relative to the working folder; the regular files that match at the end come back. Links are
    not followed."""
    warm: Literal["", "pytest"] = ""
    """What Python code will import: a sandbox that has a process with it ready starts the run there. Changes nothing else."""


@dataclass(frozen=True, slots=True)
class Level:
    """How strong the walls of a sandbox are, as measured by its own test when it started, and not as it hopes."""

    name: str
    """bubblewrap, landlock, or none: what the code of `--unsafe-local` can do is whatever you can do."""
    holds: tuple[str, ...] = ()
    """The walls that held: no_network, read_only_system, private_files, own_processes, no_new_privileges, seccomp, …"""
    lacks: tuple[str, ...] = ()
    """Those that this kernel or container cannot offer."""

    def __str__(self) -> str:
        return f"{self.name} without {', '.join(self.lacks)}" if self.lacks else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What happened."""

    level: Level
    exit_code: int | None
    """`None` when a signal ended it."""
    signal: str | None = None
    """Such as SIGKILL."""
    limit: Limit | None = None
    """The limit that was hit, when one was."""
    stdout: str = ""
    stderr: str = ""
    """As UTF-8; what is none stands as U+FFFD. Shortened in the middle past `Limits.output`."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What `Program.collect` asked for."""
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    peak_memory: int | None = None
    """Bytes; `None` where it could not be measured."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0. Says nothing about what it did. Who was refused more of something and
        coped is fine, so `limit` does not count; whoever was stopped has no exit code."""
        return self.exit_code == 0


class Session(Protocol):
    """A Python that keeps its state between calls, in walls of its own."""

    async def run(self, code: str, *, tools: Mapping[str, Tool] | None = None, wall_seconds: float | None = None) -> RunOutcome:
        """Run statements; the value of a last expression is printed as its `repr`, as an interactive Python does.

        An exception is exit code 1 with its traceback on stderr, and the session lives on. A limit ends the session.

        Raises:
            SandboxError: The session is over.
        """

    async def close(self) -> None:
        """End it with everything that it started."""


class Sandbox(Protocol):
    """Implemented by `Bubblewrap`, `Landlock`, `HttpSandbox` (a service elsewhere) and `Unsafe`. Many runs may be under way
    at once.

    Raises `SandboxError` when the sandbox itself fails, and never for what the code does.
    """

    @property
    def level(self) -> Level:
        """How strong the walls are. Known once something was run, or `start` awaited."""

    async def start(self) -> None:
        """Start and test the walls. Called by the first run where nobody did."""

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        """Run a program to its end. In its Python, `tools.NAME(…)` calls the tool of that name here and waits for its value."""

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> Session:
        """A new session. The CPU and memory limits are for its whole life, the wall limit for each call."""

    async def close(self) -> None:
        """End all that is under way. Not used afterwards."""


# What languages there are: a name, the file that the code goes into, and what runs it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How one language is run."""

    file: str
    """The name of the code in the working folder."""
    kind: Literal["python", "pytest", "command"] = "command"
    """A command is a program of its own; the others run in a Python that is warm already."""
    commands: tuple[tuple[str, ...], ...] = ()
    """The first whose program is there is taken."""
    processes: int = 0
    """Threads that the interpreter itself needs, on top of the limit."""


LANGUAGES: Mapping[str, Language] = {
    "python": Language(file="main.py", kind="python"),
    "pytest": Language(file="test_main.py", kind="pytest"),
    "shell": Language(file="main.sh", commands=(("bash",), ("sh",))),
    "javascript": Language(file="main.js", commands=(("node",), ("nodejs",)), processes=16),
}


def language(name: str) -> Language:
    """Raises `InputError` where there is none of that name."""
    if name not in LANGUAGES:
        raise InputError(f"no language {name!r}; there are {', '.join(sorted(LANGUAGES))}")
    return LANGUAGES[name]
