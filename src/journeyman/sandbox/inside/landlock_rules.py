"""Landlock: what a process takes from itself, and from all that it will start. No namespace is needed, nor root.

The words are those of the kernel's `include/uapi/linux/landlock.h`.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from . import linux

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""The same number on every kind of machine."""
VERSION = 1
PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
TRUNCATE = 1 << 14
FILES_SINCE = {1: (1 << 13) - 1, 2: 1 << 13, 3: TRUNCATE, 5: 1 << 15}
"""What of files is held from which version on: all of the first, links between folders, truncating, device controls."""
PORTS_SINCE = {4: 0b11}
"""Binding and connecting by TCP."""
SCOPES_SINCE = {6: 0b11}
"""Abstract unix sockets and signals: to nobody outside."""

READ = EXECUTE | READ_FILE | READ_DIR
USE = READ_FILE | WRITE_FILE
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
"""What may be granted for something that is no folder."""

Grant = tuple[str, int]


def version() -> int:
    """Of the kernel's Landlock; 0 where there is none."""
    try:
        return _call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION))
    except OSError:
        return 0


def restrict(grants: Iterable[Grant]) -> None:
    """From here on nothing of the file system but this, no TCP, and no signal to others. Needs no_new_privs.

    Paths that are not there are left out.

    Raises:
        OSError: The kernel has no Landlock.
    """
    known = version()
    held = _known(FILES_SINCE, known)
    attributes = struct.pack("=QQQ", held, _known(PORTS_SINCE, known), _known(SCOPES_SINCE, known))
    # An older kernel refuses what it does not know, unless it is not there at all.
    attributes = attributes[: 8 if known < 4 else 16 if known < 6 else 24]
    rules = _call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        for path, rights in grants:
            _grant(rules, path, rights & held)
        _call(RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)


def everything(known: int) -> int:
    """All that may be done in a folder of one's own: files, folders and links, but no devices and no sockets."""
    return _known(FILES_SINCE, known) & ~(MAKE_CHAR | MAKE_BLOCK | MAKE_SOCK | FILES_SINCE[5])


def _known(since: dict[int, int], known: int) -> int:
    return sum(rights for version, rights in since.items() if version <= known)


def _grant(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= OF_FILES
        rule = struct.pack("=Qi", rights, place)
        _call(ADD_RULE, ctypes.c_int(rules), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)


def _call(number: int, *arguments: object) -> int:
    result = int(linux.libc().syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"landlock: {os.strerror(ctypes.get_errno())}")
    return result
