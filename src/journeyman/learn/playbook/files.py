"""Playbooks in files: read with care, written whole or not at all.

`load` reads the documented JSON, what older versions and other systems wrote (a checkpoint, a bare list of bullets), and every
format that `journeyman.learn.playbook.formats` knows. `save` writes the documented JSON.
"""

import hashlib
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from journeyman.errors import InputError
from journeyman.learn.playbook import formats
from journeyman.learn.playbook.formats import native
from journeyman.learn.playbook.formats.base import json_of
from journeyman.learn.playbook.formats.native import bullets_json, dumps
from journeyman.playbook import Playbook, Provenance

__all__ = [
    "bullets_json",
    "check_writable",
    "digest",
    "dumps",
    "imported_from",
    "load",
    "loads",
    "read_text",
    "save",
    "write_text",
]


def load(path: Path | str) -> Playbook:
    """The playbook in a file, of whatever format.

    Raises:
        InputError: The file is not there or cannot be read.
        PlaybookError: It holds no playbook, or a part of one. Names the file and the line.
    """
    return loads(read_text(path), str(path))


def loads(text: str, where: str = "the playbook") -> Playbook:
    """The playbook in a text. `where` is what complaints call it."""
    if formats.is_json(text):
        data = json_of(text, where)
        if formats.recognise_json(data, where) == formats.NATIVE:
            return native.of(data, text, where)
    return formats.read(text, formats.recognise(text, where), where)


def save(playbook: Playbook, path: Path | str) -> None:
    """Write the documented JSON. When this returns it is on the disk; after a crash the old file is there, or the new one."""
    write_text(Path(path), dumps(playbook))


def digest(playbook: Playbook) -> str:
    """The SHA-256 of the file: two playbooks with one digest are the same to the byte."""
    return hashlib.sha256(_encoded(dumps(playbook))).hexdigest()


def read_text(path: Path | str) -> str:
    """A whole file as text, its line ends as they are."""
    try:
        return Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path} is not there; check the name") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8 (byte {error.start}); check that it is the right file") from None
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror}") from None


def check_writable(path: Path) -> None:
    """Find out whether a file could be written there, before work is spent on what it will hold. Nothing is made.

    Raises:
        InputError: It could not.
    """
    if path.is_dir():
        raise InputError(f"{path} could not be written: it is a folder; name a file in it")
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    if not folder.is_dir():
        raise InputError(f"{path} could not be written: {folder} is a file and not a folder; name another place")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path} could not be written: {folder} is not yours to write to; name another place")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: to a file beside it, which is then renamed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}", suffix=".part")
    except OSError as error:
        raise InputError(f"{path} could not be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_encoded(text))
            file.flush()
            # mkstemp makes a file for its owner alone; a file of the user's is as their umask says, or as it was.
            os.fchmod(handle, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
            os.fsync(handle)
        Path(written).replace(path)
    except OSError as error:
        raise InputError(f"{path} could not be written: {error.strerror}") from None
    finally:
        Path(written).unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    # There is no way to ask without setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _encoded(text: str) -> bytes:
    # Half a surrogate pair fits into no UTF-8; within JSON its escape says the same.
    return text.encode(errors="backslashreplace")


def imported_from(playbook: Playbook, name: str) -> Playbook:
    """The playbook with a file's name as the origin of every bullet that has none."""
    origin = Provenance(model=name)
    blank = Provenance()
    return replace(
        playbook,
        bullets=tuple(replace(b, provenance=origin) if b.provenance == blank else b for b in playbook.bullets),
    )
