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


def write(folder: str, files: Mapping[str, bytes]) -> None:
    """Lay out files in a fresh folder. The paths were checked to be relative and to stay within."""
    for path, content in files.items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(content)


def collect(folder: str, patterns: Sequence[str], limit: int) -> dict[str, bytes]:
    """The regular files that match, up to `limit` bytes in all; those that no longer fit are left out.

    Links are never followed, also not when a folder is swapped for one while this looks.
    """
    found: dict[str, bytes] = {}
    if not patterns:
        return found
    root = os.open(folder, FOLDER)
    try:
        for path, file in _walk(root, "", patterns, MAX_DEPTH):
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
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_covers(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _covers(parts[1:], pattern[1:])
