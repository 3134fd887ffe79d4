"""Files in and out of a working folder that the code may have filled with links, and nested deeper than any path is long."""

import errno
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


# Folders however deep: neither calls within calls nor paths may grow with the depth, which is the code's choice.


def everything_in(folder: str) -> Iterator[tuple[int, "os.DirEntry[str]"]]:
    """Each file and folder, with the open folder in which it lies. What goes away meanwhile is left out.

    Raises:
        OSError: It is nested deeper than this process may have files open.
    """
    stack = [(os.open(folder, FOLDER), ["."])]
    try:
        while stack:
            opened, waiting = stack[-1]
            if not waiting:
                os.close(stack.pop()[0])
            elif (below := _entered(waiting.pop(), opened)) is not None:
                with os.scandir(below) as entries:
                    found = list(entries)
                stack.append((below, [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]))
                yield from ((below, entry) for entry in found)
    finally:
        for opened, _ in stack:
            os.close(opened)


def _entered(name: str, folder: int) -> int | None:
    """The folder of that name, opened, also where its owner shut it to himself; `None` where it is one no longer."""
    for shut in (False, True):
        try:
            if shut:
                os.chmod(name, 0o700, dir_fd=folder)
            return os.open(name, FOLDER, dir_fd=folder)
        except PermissionError:
            if shut:
                raise
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            return None
    return None


def remove(folder: str) -> None:
    """A folder with all that the code left in it, nested however deep and shut however tight. Nothing runs in it any more.

    Raises:
        OSError: Something cannot be removed.
    """
    os.chmod(folder, 0o700)
    top = os.open(folder, FOLDER)
    try:
        unique, count, waiting = os.urandom(8).hex(), 0, _folders_left(top)
        while waiting:
            name = waiting.pop()
            below = os.open(name, FOLDER, dir_fd=top)
            try:
                # Brought up, what lies deep can be reached in one step.
                for child in _folders_left(below):
                    count += 1
                    os.rename(child, f"{unique}{count}", src_dir_fd=below, dst_dir_fd=top)
                    waiting.append(f"{unique}{count}")
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(folder)


def _folders_left(opened: int) -> list[str]:
    """The folders in a folder when all else in it was removed. They are open to whoever removes them."""
    with os.scandir(opened) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if is_folder:
            os.chmod(name, 0o700, dir_fd=opened)
        else:
            os.unlink(name, dir_fd=opened)
    return [name for name, is_folder in found if is_folder]
