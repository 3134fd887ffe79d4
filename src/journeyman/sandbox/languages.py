"""What languages there are: a name, the file that the code goes into, and what runs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from journeyman.errors import InputError


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
