"""Playbooks in files: read with care, written whole or not at all.

`load` reads the documented JSON, what older versions and other systems wrote (a checkpoint, a bare list of bullets), and every
format that `journeyman.optimizers.playbook.formats` knows. `save` writes the documented JSON.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from journeyman.core.errors import PlaybookError, boundary
from journeyman.core.playbook import Bullet, InsightVerdict, Playbook, Provenance, bullet_id
from journeyman.core.release import Stage
from journeyman.io.atomic import encoded, write_text
from journeyman.io.files import read_text
from journeyman.optimizers.playbook import formats
from journeyman.optimizers.playbook.formats import json_of, line_of

# The documented JSON of a playbook.
#
#     {"version", "created_at", "training_config", "bullets": [{"id", "content", "domain_id", "section", "stage",
#      "activation_count", "confidence", ...}], "batches", "trained_on"}
#
# What is as it was at birth is left out of a bullet. Keys without a meaning here are kept in `extra` and written again.
# A checkpoint, which holds the bullets under "playbook", and a bare list of bullets are read too.

VERSION = "v1.0.0"
"""Of the file format. Later ones of the same first number only add keys."""


def loads_native(text: str, where: str) -> Playbook:
    """The playbook in a playbook file, a checkpoint or a bare list of bullets."""
    return of(json_of(text, where), text, where)


def of(data: Any, text: str, where: str) -> Playbook:
    """As `loads`, for JSON that has been parsed; the text is for complaints."""
    return _native(data, _Source(text, where))


def dumps(playbook: Playbook) -> str:
    """The documented JSON: stable order, indented, so that the difference of two versions reads like a change to a text."""
    known = {"version", "created_at", "training_config", "bullets", "batches", "trained_on"}
    version = playbook.extra.get("version", VERSION)
    kept = dict(playbook.extra)
    if _newer(version):
        version = VERSION  # not ours to claim; what was said of it stays in `extra`
    else:
        kept.pop("version", None)
    data: dict[str, Any] = {
        "version": version,
        "created_at": playbook.created_at,
        "training_config": dict(playbook.training_config),
        "bullets": bullets_json(playbook),
    }
    if playbook.batches:
        data["batches"] = sorted(playbook.batches)
    if playbook.trained_on:
        data["trained_on"] = sorted(playbook.trained_on)
    _put_extra(data, kept, known)
    try:
        # Several times faster than json.dumps, which indents in Python.
        return to_json(data, indent=2).decode() + "\n"
    except PydanticSerializationError:
        # Half a surrogate pair, which a model's JSON may hold, goes through json alone.
        with boundary(PlaybookError, "the playbook cannot be written as JSON"):
            return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def bullets_json(playbook: Playbook) -> list[dict[str, Any]]:
    """The bullets as they stand in a file, ready for `json`."""
    return [_row(bullet) for bullet in playbook.bullets]


_KEYS = {
    "id": "id",
    "content": "content",
    "domain_id": "domain",
    "section": "section",
    "stage": "stage",
    "activation_count": "shown",
    "cited_count": "cited",
    "helpful_count": "helpful",
    "harmful_count": "harmful",
    "support_count": "support",
    "about": "about",
    "locked": "locked",
    "retired": "retired",
    "held": "held",
    "expires_at": "expires_at",
    "provenance": "provenance",
    "created_at": "created_at",
    "updated_at": "updated_at",
    "version": "version",
}
"""What a field of a bullet is called in the file."""

_ALWAYS = ("id", "content", "domain_id", "section", "stage", "activation_count")
_BLANK = Bullet(id="", content="")
_OPTIONAL = tuple((key, name, getattr(_BLANK, name)) for key, name in _KEYS.items() if key not in _ALWAYS)
"""Left out where they are as they are at birth."""
_TAKEN = frozenset(_KEYS) | {"confidence", "extra"}


def _row(bullet: Bullet) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": bullet.id,
        "content": bullet.content,
        "domain_id": bullet.domain,
        "section": bullet.section,
        "stage": bullet.stage,
        "activation_count": bullet.shown,
        "confidence": round(bullet.confidence, 4),
    }
    extra = bullet.extra
    if "confidence" in extra and not bullet.helpful and not bullet.harmful and extra["confidence"] != bullet.confidence:
        # An older system's number, of which nobody knows the votes. It stands until there are some.
        row["confidence"] = extra["confidence"]
        extra = {key: value for key, value in extra.items() if key != "confidence"}
    for key, name, blank in _OPTIONAL:
        value = getattr(bullet, name)
        if value != blank:
            row[key] = _provenance(value) if key == "provenance" else value
    if extra:
        _put_extra(row, extra, _TAKEN)
    return row


def _provenance(value: Provenance) -> dict[str, Any]:
    said = {field.name: getattr(value, field.name) for field in fields(Provenance)}
    return {name: list(part) if isinstance(part, tuple) else part for name, part in said.items() if part}


def _put_extra(data: dict[str, Any], extra: Mapping[str, object], known: frozenset[str] | set[str]) -> None:
    """What we have no word for stands beside what we have one for; under `extra` if its name is taken."""
    data.update({key: value for key, value in extra.items() if key not in known and key != "extra"})
    if hidden := {key: value for key, value in extra.items() if key in known or key == "extra"}:
        data["extra"] = hidden


class _Source:
    """A text that is being read, for complaints."""

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self.where = where

    def refuse(self, complaint: str, needle: str = "", nth: int = 1) -> PlaybookError:
        line = line_of(self.text, needle, nth=nth) if needle else 1
        return PlaybookError(f"{self.where}:{line}: {complaint}")


def _native(data: Any, source: _Source) -> Playbook:
    """A playbook file, a checkpoint or a bare list of bullets."""
    if isinstance(data, list):
        return Playbook(bullets=_bullets(data, source))
    if "playbook" in data and "bullets" not in data:
        inner = data["playbook"]
        if isinstance(inner, dict):
            return _native(inner, source)
        config, timestamp = data.get("config"), data.get("timestamp")
        data = {"created_at": timestamp or "", "training_config": config or {}, "bullets": inner}
    known = ("version", "created_at", "training_config", "bullets", "batches", "trained_on", "extra")
    if not isinstance(data.get("bullets"), list):
        raise source.refuse('"bullets" is not a list; a playbook file holds a list of bullets there', '"bullets"')
    extra = {key: value for key, value in data.items() if key not in known} | _hidden(data, source)
    version = data.get("version", VERSION)
    if _newer(version):
        raise source.refuse(f"version {version} is newer than this program, which knows {VERSION}; update it", '"version"')
    return Playbook(
        bullets=_bullets(data["bullets"], source),
        batches=frozenset(_expect(list, data.get("batches", []), '"batches"', source)),
        created_at=_expect(str, data.get("created_at") or "", '"created_at"', source),
        training_config=_expect(dict, data.get("training_config") or {}, '"training_config"', source),
        extra=extra if version == VERSION else {"version": version, **extra},
        trained_on=frozenset(map(str, _expect(list, data.get("trained_on", []), '"trained_on"', source))),
    )


def _newer(version: object) -> bool:
    """Whether only a later program can read a file of that version."""
    return re.fullmatch(r"v?([2-9]|\d\d+)\.\d+(\.\d+)?", str(version)) is not None


def _hidden(data: dict[str, Any], source: _Source) -> dict[str, Any]:
    return dict(_expect(dict, data.get("extra", {}), '"extra"', source))


def _expect(kind: type[Any], value: Any, key: str, source: _Source) -> Any:
    if isinstance(value, kind):
        return value
    words = {"str": "a text", "list": "a list", "dict": "an object"}
    raise source.refuse(f"{key} is not {words[kind.__name__]}; mend it or leave it out", key)


_BULLETS = TypeAdapter(tuple[Bullet, ...])


def _bullets(rows: list[Any], source: _Source) -> tuple[Bullet, ...]:
    seen: set[str] = set()
    read = [_fields(number, row, seen, source) for number, row in enumerate(rows, start=1)]
    try:
        return _BULLETS.validate_python(read)
    except (ValidationError, PlaybookError):
        # Rare, so only now is it asked which bullet it was.
        for number, one in enumerate(read, start=1):
            _check(number, one, source)
        raise


def _check(number: int, one: dict[str, Any], source: _Source) -> None:
    needle = json.dumps(one["id"], ensure_ascii=False)
    try:
        _BULLETS.validate_python([one])
    except ValidationError as error:
        first = error.errors()[0]
        names = {name: key for key, name in _KEYS.items()}
        key = names.get(str(first["loc"][1]), first["loc"][1]) if len(first["loc"]) > 1 else "?"
        raise source.refuse(f'bullet {number} cannot be read: "{key}": {first["msg"].lower()}', needle) from None
    except PlaybookError as error:
        raise source.refuse(" ".join(str(error).split()), needle) from None


_STAGES = {
    "staging": Stage.CANARY,
    "prod": Stage.PRODUCTION,
    "quarantined": Stage.ROLLED_BACK,
}
"""What other systems call a stage."""
_VERDICTS = frozenset(verdict.value for verdict in InsightVerdict)


def _fields(number: int, row: Any, seen: set[str], source: _Source) -> dict[str, Any]:
    """A bullet's row under our names."""
    if not isinstance(row, dict):
        raise source.refuse(f"bullet {number} is not an object; a bullet has at least an id and a content")
    if "content" not in row:
        needle = json.dumps(row.get("id", ""), ensure_ascii=False)
        raise source.refuse(f'bullet {number} has no "content"; write one, or remove the bullet', needle)
    one = {_KEYS[key]: value for key, value in row.items() if key in _KEYS and value is not None}
    if extra := _extra(row, one, source):
        one["extra"] = extra
    _translate(one)
    one.setdefault("domain", _BLANK.domain)
    if "id" not in one:
        one["id"] = bullet_id(str(one["domain"]), str(one["content"]))
    id = str(one["id"])
    if id in seen:
        raise source.refuse(
            f"a second bullet has the id {json.dumps(id)}; keep one of them", json.dumps(id, ensure_ascii=False), nth=2
        )
    seen.add(id)
    return one


def _extra(row: dict[str, Any], one: dict[str, Any], source: _Source) -> dict[str, Any]:
    extra = {key: value for key, value in row.items() if key not in _TAKEN}
    if "extra" in row:
        extra |= _hidden(row, source)
    if "confidence" in row and "helpful" not in one and "harmful" not in one and row["confidence"] != _BLANK.confidence:
        extra["confidence"] = row["confidence"]
    return extra


def _translate(one: dict[str, Any]) -> None:
    """Other systems' words for a section and a stage into ours."""
    section, stage = one.get("section"), one.get("stage")
    if isinstance(section, str) and section not in _VERDICTS and section.casefold() in _VERDICTS:
        one["section"] = section.casefold()
    if isinstance(stage, str) and stage in _STAGES:
        one["stage"] = _STAGES[stage]
        if stage == "quarantined":
            one.setdefault("retired", "quarantined where it came from")


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
            return of(data, text, where)
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
