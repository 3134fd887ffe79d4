"""What all formats share: reading JSON with a place in every complaint, and saying what a format cannot carry."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from journeyman.errors import PlaybookError
from journeyman.playbook import Bullet, Playbook


@dataclass(frozen=True, slots=True)
class Exported:
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
    "domains": lambda bullet: bullet.domain != _BLANK.domain,
    "stages": lambda bullet: bullet.stage != _BLANK.stage,
    "what a rule is about": lambda bullet: bool(bullet.about),
    "counts of being shown": lambda bullet: bullet.shown > 0,
    "counts of being cited": lambda bullet: bullet.cited > 0,
    "votes": lambda bullet: bullet.helpful + bullet.harmful > 0,
    "counts of support": lambda bullet: bullet.support != _BLANK.support,
    "locks": lambda bullet: bullet.locked,
    "tasks and runs of origin": lambda bullet: bool(bullet.provenance.run or bullet.provenance.tasks),
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
