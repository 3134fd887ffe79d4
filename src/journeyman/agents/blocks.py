"""Files in a model's reply: fenced blocks that name a file.

The form that is asked for is a fence with the name behind it, as in "```python file=app/main.py". Models also write the name
alone behind the fence, on the line before it, or in a comment on the first line within; all of that is read. What is none of
these, or would leave the folder, is refused with a sentence that the model can act on.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from journeyman.fences import Fence, fences

MOST_FILES = 64
MOST_CHARACTERS = 1_000_000
"""Of one reply's files together."""
ALONE = "main.py"
"""What the only block of Python is called when nothing names it."""
_PYTHON = frozenset({"", "python", "python3", "py"})
_NAME = r"[\w.][\w./-]*\.\w{1,8}"
_FIELD = re.compile(r"""\b(?:file|filename|name|path|title)\s*[=:]\s*(?:"([^"]*)"|'([^']*)'|(\S+))""", re.IGNORECASE)
_BARE = re.compile(rf"(?<![\w./-])(?:{_NAME}|Dockerfile|Makefile)(?![\w./-])")
_BEFORE = re.compile(rf"^[\s#*>\d.)-]*(?:file(?:name)?\s*:?\s*)?[*`_\"]*(?P<name>{_NAME})[*`_\"]*\s*:?[*`]*\s*$", re.IGNORECASE)
_WITHIN = re.compile(
    rf"^\s*(?:#|//|--|;|<!--|/\*)\s*(?:file(?:name)?\s*:\s*)?(?P<name>{_NAME})\s*(?:-->|\*/)?\s*$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Written:
    """What a reply wrote."""

    files: Mapping[str, str]
    """By relative path."""
    faults: tuple[str, ...]
    """What could not be used, a sentence each."""


def written(reply: str) -> Written:
    """The files of a reply; of two with one name the last. Never raises, whatever the reply holds."""
    blocks = list(fences(reply))
    named = [(name, block) for block in blocks if (name := _name(block))]
    if not named:
        unnamed = [block for block in blocks if block.info.strip().casefold() in _PYTHON]
        if len(unnamed) != 1:
            return Written({}, ("no fenced block names a file; begin each with its name, as in ```python file=main.py",))
        named = [(ALONE, unnamed[0])]
    files: dict[str, str] = {}
    faults: list[str] = []
    for name, block in named:
        path, fault = safe(name)
        if not block.closed:
            fault = f"the block of {name[:80]!r} has no end, so the reply was cut off; write shorter files, or fewer at once"
        if fault:
            faults.append(fault)
        else:
            files[path] = block.text
    if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_CHARACTERS:
        return Written({}, (f"that is more than {MOST_FILES} files or {MOST_CHARACTERS} characters; write less",))
    return Written(files, tuple(faults))


def safe(name: str) -> tuple[str, str]:
    """The path as it is used, or why it is refused: one that could leave its folder, on any system."""
    path = PurePosixPath(name.strip())
    parts = path.parts
    fine = (
        0 < len(parts) <= 8
        and len(str(path)) <= 200
        and ".." not in parts
        and re.fullmatch(r"[\w.][\w. +@-]*(/[\w.][\w. +@-]*)*", str(path), re.ASCII) is not None
    )
    if fine:
        return str(path), ""
    return "", f"{name[:80]!r} is no path that can be used; name files by a relative path of plain characters, without '..'"


def _name(block: Fence) -> str:
    """What the block's file is called; empty when nothing says it."""
    if found := _FIELD.search(block.info):
        return next(group for group in found.groups() if group is not None)
    if found := _BARE.search(block.info):
        return found.group()
    first = (block.lines or ("",))[0]
    inside = _WITHIN.match(first[:200]) or _BEFORE.match(block.before[-200:])
    return inside["name"] if inside else ""
