"""Playbooks in files: read with care, written whole or not at all.

`load` reads the documented JSON, what older versions and other systems wrote (a checkpoint, a bare list of bullets), and every
format that `journeyman.learn.playbook.formats` knows. `save` writes the documented JSON.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

from journeyman.io.atomic import encoded, write_text
from journeyman.io.files import check_writable, read_text
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
    return hashlib.sha256(encoded(dumps(playbook))).hexdigest()


def imported_from(playbook: Playbook, name: str) -> Playbook:
    """The playbook with a file's name as the origin of every bullet that has none."""
    origin = Provenance(model=name)
    blank = Provenance()
    return replace(
        playbook,
        bullets=tuple(replace(b, provenance=origin) if b.provenance == blank else b for b in playbook.bullets),
    )
