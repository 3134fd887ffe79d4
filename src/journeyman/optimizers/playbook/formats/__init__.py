"""Playbooks of other systems, by name. A reader keeps what it has no word for, so that what is read can be written again."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Any

from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.playbook import Bullet, Playbook

__all__ = [
    "AGENT_FILES",
    "LOST",
    "MARK",
    "NATIVE",
    "READABLE",
    "SKILL_FILE",
    "TITLED",
    "WRITABLE",
    "ExportedPlaybook",
    "blocks",
    "in_block",
    "is_json",
    "json_of",
    "line_of",
    "lost",
    "mapping",
    "read",
    "recognise",
    "recognise_json",
    "unused",
    "write",
]

# What all formats share: reading JSON with a place in every complaint, and saying what a format cannot carry.


@dataclass(frozen=True, slots=True)
class ExportedPlaybook:
    """A playbook as the text of another format, and one sentence for each thing that the format had no room for."""

    text: str
    losses: tuple[str, ...] = ()


def json_of(text: str, where: str) -> Any:
    """The value of a JSON text. `where` is the file's name.

    Raises:
        PlaybookError: It is not JSON, not whole, or the place of two versions that were never merged.
    """

    def not_a_number(word: str) -> Any:
        raise PlaybookError(f"{where}:{line_of(text, word)}: {word} is not JSON; write a number or null")

    try:
        return json.loads(text, parse_constant=not_a_number)
    except json.JSONDecodeError as error:
        if "\n<<<<<<< " in text:
            line = line_of(text, "\n<<<<<<< ", after=1)
            raise PlaybookError(f"{where}:{line}: two versions stand here unmerged; choose one and remove the marks") from None
        whole = "the file is cut off" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else error.msg
        raise PlaybookError(
            f"{where}:{error.lineno}: this is not whole JSON ({whole}); bring the file back from a copy"
        ) from None
    except ValueError as error:
        raise PlaybookError(f"{where}:1: this JSON holds a number that is too long to be one; mend it ({error})") from None
    except RecursionError:
        raise PlaybookError(
            f"{where}:1: this JSON is nested too deeply to be a playbook; check that it is the right file"
        ) from None


def line_of(text: str, needle: str, *, after: int = 0, nth: int = 1) -> int:
    """The line on which the needle (from its character `after` on) stands for the nth time; 1 if it does not."""
    found = -1
    for _ in range(nth):
        found = text.find(needle, found + 1)
    return text.count("\n", 0, max(found, 0) + after) + 1


_BLANK = Bullet(id="", content="")

LOST: dict[str, Callable[[Bullet], bool]] = {
    "retired bullets": lambda bullet: bool(bullet.retired),
    "held bullets": lambda bullet: bool(bullet.held and not bullet.retired),
    "domains": lambda bullet: bullet.domain != _BLANK.domain,
    "stages": lambda bullet: bullet.stage != _BLANK.stage,
    "what a rule is about": lambda bullet: bool(bullet.about),
    "counts of being shown": lambda bullet: bullet.shown > 0,
    "counts of being cited": lambda bullet: bullet.cited > 0,
    "votes": lambda bullet: bullet.helpful + bullet.harmful > 0,
    "counts of support": lambda bullet: bullet.support != _BLANK.support,
    "locks": lambda bullet: bullet.locked,
    "tasks and runs of origin": lambda bullet: bool(bullet.provenance.run or bullet.provenance.tasks),
    "traces of origin": lambda bullet: bool(bullet.provenance.origin or bullet.provenance.traces or bullet.provenance.evidence),
    "dates of expiry": lambda bullet: bool(bullet.expires_at),
    "dates": lambda bullet: bool(bullet.created_at or bullet.updated_at),
    "version numbers": lambda bullet: bullet.version != _BLANK.version,
}
"""What a bullet may have beside id, section and text, and how it is seen that it has."""


def lost(playbook: Playbook, carried: Collection[str], own: str) -> list[str]:
    """What a format cannot say of this playbook. `carried` are keys of `LOST`; `own` is its key in `extra`."""
    counts = {what: sum(map(has, playbook.bullets)) for what, has in LOST.items() if what not in carried}
    said = [f"{what} are left out ({count} of {len(playbook.bullets)} bullets)" for what, count in counts.items() if count]
    extras = [playbook.extra, *(bullet.extra for bullet in playbook.bullets)]
    others = sorted({key for extra in extras for key in extra if key != own})
    if others:
        said.append(f"what other formats said is left out ({', '.join(others)})")
    if playbook.training_config:
        said.append("the training configuration is left out")
    return said


def mapping(value: object) -> Mapping[str, Any]:
    """What a reader kept in `extra`, or nothing if it is not what a reader keeps."""
    return value if isinstance(value, Mapping) else {}


def unused(id: str, taken: Collection[str]) -> str:
    """The id itself, or with a number behind it if it is taken: real files hold an id twice."""
    number = 2
    free = id
    while free in taken:
        free = f"{id}~{number}"
        number += 1
    return free


NATIVE = "journeyman"
"""The name of the documented JSON, which `journeyman.optimizers.playbook.files` saves."""

_FOLDER = "journeyman.optimizers.playbook.formats"
_READERS = {
    NATIVE: ("journeyman.optimizers.playbook.files", "loads_native"),
    "ace": (f"{_FOLDER}.ace_text", "read"),
    "ace-framework": (f"{_FOLDER}.framework", "read"),
    "cheatsheet": (f"{_FOLDER}.cheatsheet", "read"),
    "skill": (f"{_FOLDER}.markdown", "read_skill"),
    "agents-md": (f"{_FOLDER}.markdown", "read_agents"),
    "langfuse": (f"{_FOLDER}.markdown", "read_langfuse"),
    "mlflow": (f"{_FOLDER}.markdown", "read_mlflow"),
}
_WRITERS = {
    "ace": (f"{_FOLDER}.ace_text", "write_ace"),
    "appworld": (f"{_FOLDER}.ace_text", "write_appworld"),
    "ace-framework-v0": (f"{_FOLDER}.framework", "write_v0"),
    "ace-framework-v1": (f"{_FOLDER}.framework", "write_v1"),
    "ace-framework-v1.5": (f"{_FOLDER}.framework", "write_v1_5"),
    "ace-framework-v2": (f"{_FOLDER}.framework", "write_v2"),
    "skill": (f"{_FOLDER}.markdown", "write_skill"),
    "agents-md": (f"{_FOLDER}.markdown", "write_agents"),
    "langfuse": (f"{_FOLDER}.markdown", "write_langfuse"),
    "mlflow": (f"{_FOLDER}.markdown", "write_mlflow"),
}
TITLED = frozenset({"skill", "agents-md", "langfuse", "mlflow"})
"""Those in which a playbook has a name."""

READABLE = tuple(_READERS)
WRITABLE = tuple(_WRITERS)


def is_json(text: str) -> bool:
    """Whether a text can only be JSON, whole or not. A bullet's line, too, begins with a bracket."""
    return re.match(r"\ufeff?\s*(\{|\[\s*([\[{\]]|$))", text) is not None


def recognise(text: str, where: str = "the playbook") -> str:
    """`journeyman`, or the name of the reader for a text, told from its content, and where that is any Markdown, from its name.

    Raises:
        PlaybookError: It is none of them, or it is JSON that is not whole.
    """
    if not text.strip("\ufeff \t\r\n"):
        raise PlaybookError(f'{where}:1: the file is empty; an empty playbook is written {{"bullets": []}}')
    if is_json(text):
        return recognise_json(json_of(text, where), where)
    if re.search(r"<memory_item>|<cheatsheet>", text):
        return "cheatsheet"
    file = PurePath(where).name
    if file == SKILL_FILE or re.match(r"\ufeff?---[ \t]*\r?\n(?:(?!---).*\n)*?name:", text):
        return "skill"
    if file in AGENT_FILES or _MARKS.search(text):
        return "agents-md"
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
    if "name" in data and ("prompt" in data or "template" in data):
        return "langfuse" if "prompt" in data else "mlflow"
    raise PlaybookError(f'{where}:1: this JSON is no playbook: it has neither "bullets" nor "skills"')


def read(text: str, name: str, where: str = "the playbook") -> Playbook:
    """The playbook in a text of a format in `READABLE`. `where` is what complaints call the text."""
    if name not in _READERS:
        raise InputError(f"no format {name!r} can be read; there are {', '.join(READABLE)}")
    module, function = _READERS[name]
    reader: Callable[[str, str], Playbook] = getattr(import_module(module), function)
    return reader(text, where)


def write(playbook: Playbook, name: str, *, title: str = "") -> ExportedPlaybook:
    """The playbook in a format of `WRITABLE`, and what was lost.

    Args:
        title: What the playbook is called there, in a format of `TITLED`.
    """
    if name not in _WRITERS:
        raise InputError(f"no format {name!r} can be written; there are {', '.join(WRITABLE)}")
    module, function = _WRITERS[name]
    writer: Callable[..., ExportedPlaybook] = getattr(import_module(module), function)
    return writer(playbook, title) if title and name in TITLED else writer(playbook)


# What stands in somebody's file between marks of ours.

SKILL_FILE = "SKILL.md"
AGENT_FILES = ("AGENTS.md", "CLAUDE.md")
"""What coding agents read of a repository by themselves."""
MARK = "journeyman"
_MARKS = re.compile(rf"^[ \t]*<!-- {MARK}:(begin|end) (\S+) -->[ \t]*\r?$", re.MULTILINE)


def blocks(text: str, where: str) -> Iterator[str]:
    """What stands between our marks in a text, block by block.

    Raises:
        PlaybookError: A mark has no other one.
    """
    return (text[start.end() : end.start()] for start, end in _marked(text, where))


def in_block(text: str, block: str, where: str) -> str:
    """The text with a block of ours in the place of the one of its name, or at its end. All else stays, and so do line ends.

    Raises:
        PlaybookError: A mark has no other one, so that nobody knows what would be replaced.
    """
    begin = _MARKS.search(block)
    assert begin is not None
    block = block.rstrip("\n")
    if "\r\n" in text:
        block = block.replace("\n", "\r\n")
    for start, end in _marked(text, where):
        if start[2] == begin[2]:
            return text[: start.start()] + block + text[end.end() - end[0].endswith("\r") :]
    line = "\r\n" if "\r\n" in text else "\n"
    between = "" if not text else line if text.endswith("\n") and text.strip() else line * (1 + bool(text.strip()))
    return f"{text}{between}{block}{line}"


def _marked(text: str, where: str) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Pairs of marks."""
    start: re.Match[str] | None = None
    for mark in _MARKS.finditer(text):
        if (mark[1] == "begin") is (start is not None) or (start is not None and start[2] != mark[2]):
            raise PlaybookError(f"{where}:{text.count(chr(10), 0, mark.start()) + 1}: {_ALONE.format(mark[0].strip())}")
        if start is not None:
            yield start, mark
        start = None if start is not None else mark
    if start is not None:
        raise PlaybookError(f"{where}:{text.count(chr(10), 0, start.start()) + 1}: {_ALONE.format(start[0].strip())}")


_ALONE = "the mark {} stands without its other one; put that back, or take this one away"
