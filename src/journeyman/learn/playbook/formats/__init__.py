"""Playbooks of other systems, by name. A reader keeps what it has no word for, so that what is read can be written again."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from journeyman.errors import InputError, PlaybookError
from journeyman.learn.playbook.formats.base import Exported, json_of
from journeyman.playbook import Playbook

__all__ = ["NATIVE", "READABLE", "WRITABLE", "Exported", "is_json", "read", "recognise", "recognise_json", "write"]

NATIVE = "journeyman"
"""The name of the documented JSON, which `journeyman.learn.playbook.files` saves."""

_FOLDER = "journeyman.learn.playbook.formats"
_READERS = {
    NATIVE: (f"{_FOLDER}.native", "loads"),
    "ace": (f"{_FOLDER}.ace_text", "read"),
    "ace-framework": (f"{_FOLDER}.framework", "read"),
    "cheatsheet": (f"{_FOLDER}.cheatsheet", "read"),
}
_WRITERS = {
    "ace": (f"{_FOLDER}.ace_text", "write_ace"),
    "appworld": (f"{_FOLDER}.ace_text", "write_appworld"),
    "ace-framework-v0": (f"{_FOLDER}.framework", "write_v0"),
    "ace-framework-v1": (f"{_FOLDER}.framework", "write_v1"),
    "ace-framework-v1.5": (f"{_FOLDER}.framework", "write_v1_5"),
    "ace-framework-v2": (f"{_FOLDER}.framework", "write_v2"),
    "skill": (f"{_FOLDER}.skill", "write"),
}

READABLE = tuple(_READERS)
WRITABLE = tuple(_WRITERS)


def is_json(text: str) -> bool:
    """Whether a text can only be JSON, whole or not. A bullet's line, too, begins with a bracket."""
    return re.match(r"\ufeff?\s*(\{|\[\s*([\[{\]]|$))", text) is not None


def recognise(text: str, where: str = "the playbook") -> str:
    """`journeyman`, or the name of the reader for a text, told from its content alone.

    Raises:
        PlaybookError: It is none of them, or it is JSON that is not whole.
    """
    if not text.strip("\ufeff \t\r\n"):
        raise PlaybookError(f'{where}:1: the file is empty; an empty playbook is written {{"bullets": []}}')
    if is_json(text):
        return recognise_json(json_of(text, where), where)
    if re.search(r"<memory_item>|<cheatsheet>", text):
        return "cheatsheet"
    # A bullet says something on the line of its id, and is no link; a playbook without bullets is headings alone.
    bullet = re.search(r"^[ \t]*(?:[-*] )?\[[^\]\s]+\][ \t]*[^\s(\[]", text, re.MULTILINE)
    if bullet or all(not line.strip() or re.match(r"##(?!#)", line) for line in text.lstrip("\ufeff").splitlines()):
        return "ace"
    raise PlaybookError(f"{where}:1: no playbook is recognised here; what can be read is {', '.join(READABLE)}")


def recognise_json(data: Any, where: str = "the playbook") -> str:
    """As `recognise`, for JSON that has been parsed."""
    if isinstance(data, list):
        return NATIVE
    if "skills" in data or isinstance(data.get("bullets"), dict):
        return "ace-framework"
    if "bullets" in data or "playbook" in data:
        return NATIVE
    raise PlaybookError(f'{where}:1: this JSON is no playbook: it has neither "bullets" nor "skills"')


def read(text: str, name: str, where: str = "the playbook") -> Playbook:
    """The playbook in a text of a format in `READABLE`. `where` is what complaints call the text."""
    if name not in _READERS:
        raise InputError(f"no format {name!r} can be read; there are {', '.join(READABLE)}")
    module, function = _READERS[name]
    reader: Callable[[str, str], Playbook] = getattr(import_module(module), function)
    return reader(text, where)


def write(playbook: Playbook, name: str) -> Exported:
    """The playbook in a format of `WRITABLE`, and what was lost."""
    if name not in _WRITERS:
        raise InputError(f"no format {name!r} can be written; there are {', '.join(WRITABLE)}")
    module, function = _WRITERS[name]
    writer: Callable[[Playbook], Exported] = getattr(import_module(module), function)
    return writer(playbook)
