"""Files in and out of a working folder that the code may have filled with links."""

import fnmatch
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Without blocking: a fifo would wait for a writer that never comes."""
MAX_DEPTH = 64
MAX_BYTES = 512 * 1024 * 1024
MAX_NAMES, NAME_COST = 2 * 1024 * 1024, 16
"""Bytes of all names together, and what each costs besides: in JSON, where a letter may take six, they go into one head."""


def write(folder: str, files: Mapping[str, bytes]) -> None:
    """Lay out files in a fresh folder. The paths were checked to be relative and to stay within."""
    for path, content in files.items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(content)


def collect(folder: str, patterns: Sequence[str], limit: int) -> dict[str, bytes]:
    """The regular files that match, up to `limit` bytes in all; those that no longer fit are left out, as are those whose
    names are no text. Nothing where the folder was moved away.

    Links are never followed, also not when a folder is swapped for one while this looks.
    """
    found: dict[str, bytes] = {}
    if not patterns:
        return found
    try:
        root = os.open(folder, FOLDER)
    except OSError:
        return found
    limit, names = min(limit, MAX_BYTES), MAX_NAMES
    try:
        for path, file in _walk(root, "", patterns, MAX_DEPTH):
            names -= len(os.fsencode(path)) + NAME_COST
            if names < 0:
                break
            content = file.read(limit + 1)
            if len(content) <= limit:
                limit -= len(content)
                found[path] = content
    finally:
        os.close(root)
    return found


def _walk(folder: int, prefix: str, patterns: Sequence[str], depth: int) -> Iterator[tuple[str, BinaryIO]]:
    with os.scandir(folder) as entries:
        names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for name, is_folder in names:
        if not _is_text(name):
            continue
        path = prefix + name
        if is_folder and depth:
            try:
                below = os.open(name, FOLDER, dir_fd=folder)
            except OSError:
                continue
            try:
                yield from _walk(below, f"{path}/", patterns, depth - 1)
            finally:
                os.close(below)
        elif not is_folder and matches(path, patterns):
            try:
                opened = os.open(name, FILE, dir_fd=folder)
            except OSError:
                continue
            with open(opened, "rb") as file:
                if stat.S_ISREG(os.fstat(opened).st_mode):
                    yield path, file


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a glob pattern covers the path: `*` stays within a folder, `**` does not."""
    return any(_covers(path.split("/"), pattern.split("/")) for pattern in patterns)


def _covers(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """In time of the product of their lengths: a pattern may come from anybody."""
    reached = {0}
    for step in pattern:
        if step == "**":
            reached = set(range(min(reached), len(parts) + 1))
        else:
            reached = {i + 1 for i in reached if i < len(parts) and fnmatch.fnmatchcase(parts[i], step)}
        if not reached:
            return False
    return len(parts) in reached


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
