"""The skillbooks of the `ace-framework` package, all four generations of its JSON.

    v0     {"bullets": {id: {...}}, "sections", "next_id"}                       up to 0.6
    v1     {"skills": {id: {... helpful, harmful, neutral ...}}, "sections", ...}    0.7 to 0.9.2
    v1.5   the same without counters                                             0.9.3 to 0.10
    v2     {"schema_version": "2", ...}: an issue and an insight instead of a content    0.12 and later

None but the last says which it is, so the keys decide. What we have no word for (sources, keywords, a neutral count) is kept
in `extra["ace-framework"]`. A skill that is written in no usual way is kept there as it was, and what has not changed since is
written again from that; so a file that was read and not changed is written again byte for byte.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from journeyman.core.errors import PlaybookError
from journeyman.core.playbook import Bullet, InsightVerdict, Playbook
from journeyman.optimizers.playbook.formats import ExportedPlaybook, json_of, line_of, lost, mapping

_OWN = "ace-framework"
_INACTIVE = "not active in the skillbook that it came from"


@dataclass(frozen=True, slots=True)
class _Generation:
    name: str
    top: str
    """The key under which the skills stand."""
    keys: tuple[str, ...]
    """Of a skill, in order."""
    blanks: Mapping[str, Any]
    """What a key holds in a skill that was born here. Keys that are in neither place are written only if they were read."""
    carried: frozenset[str]
    """What of ours it can say, as in `LOST`."""


_V0_KEYS = ("id", "section", "content", "helpful", "harmful", "neutral", "created_at", "updated_at")
# 0.6 added these two, at which the versions before it fall over: they are written only where they were read.
_V06_KEYS = (*_V0_KEYS, "embedding", "status")
_V1_KEYS = ("id", "section", "content", "justification", "evidence", *_V0_KEYS[3:], "embedding", "status", "sources")
_V15_KEYS = tuple(key for key in _V1_KEYS if key not in ("helpful", "harmful", "neutral"))
_V2_KEYS = (
    *("id", "section", "keywords", "issue", "insight", "occurrences", "active", "used_count"),
    *("helpful_count", "harmful_count", "neutral_count", "created_at", "updated_at"),
)
_V2_BLANKS: dict[str, Any] = {"occurrences": [], "neutral_count": 0}

_V1_CARRIED = frozenset({"votes", "dates", "retired bullets"})

_GENERATIONS = {
    one.name: one
    for one in (
        _Generation("v0", "bullets", _V06_KEYS, {"neutral": 0}, _V1_CARRIED - {"retired bullets"}),
        _Generation("v1", "skills", _V1_KEYS, {"neutral": 0, "embedding": None}, _V1_CARRIED),
        _Generation(
            "v1.5",
            "skills",
            _V15_KEYS,
            {"justification": None, "evidence": None, "sources": []},
            _V1_CARRIED - {"votes"},
        ),
        _Generation("v2", "skills", _V2_KEYS, _V2_BLANKS, _V1_CARRIED | {"counts of being shown"}),
    )
}


def read(text: str, where: str) -> Playbook:
    """The playbook in a skillbook of any generation.

    Raises:
        PlaybookError: It is not JSON, or a skill is not what a skill is. Names the line.
    """
    data = json_of(text, where)
    generation = _generation(data)
    rows = data.get(generation.top)
    if not isinstance(rows, dict):
        raise PlaybookError(f'{where}:1: "{generation.top}" is not an object of skills; check that it is a skillbook')
    bullets = tuple(_read(id, row, generation, _Place(text, where)) for id, row in rows.items())
    top = {key: value for key, value in data.items() if key not in (generation.top, "schema_version")}
    kept: dict[str, Any] = {"generation": generation.name, "top": top}
    if (order := list(data)) != _order(generation, top):
        kept["order"] = order
    if list(data) and top.get("sections") == (usual := _sections(Playbook(bullets=bullets), bullets, generation)):
        if list(top["sections"]) == list(usual):
            del top["sections"]
    elif unlisted := sorted(rows.keys() - _listed(mapping(top.get("sections")))):
        # Sections need not name every skill; those that are new since are named.
        kept["unlisted"] = unlisted
    if style := _style(data, text):
        kept["style"] = style
    return Playbook(bullets=bullets, extra={_OWN: kept})


def write_v0(playbook: Playbook) -> ExportedPlaybook:
    return _write(playbook, _GENERATIONS["v0"])


def write_v1(playbook: Playbook) -> ExportedPlaybook:
    return _write(playbook, _GENERATIONS["v1"])


def write_v1_5(playbook: Playbook) -> ExportedPlaybook:
    return _write(playbook, _GENERATIONS["v1.5"])


def write_v2(playbook: Playbook) -> ExportedPlaybook:
    return _write(playbook, _GENERATIONS["v2"])


def _generation(data: Mapping[str, Any]) -> _Generation:
    if str(data.get("schema_version", "")) == "2":
        return _GENERATIONS["v2"]
    if isinstance(data.get("bullets"), dict):
        return _GENERATIONS["v0"]
    skills = data.get("skills")
    rows = list(skills.values()) if isinstance(skills, dict) else []
    counted = not rows or any(isinstance(row, dict) and "helpful" in row for row in rows)
    return _GENERATIONS["v1" if counted else "v1.5"]


@dataclass(frozen=True, slots=True)
class _Place:
    text: str
    where: str

    def refuse(self, id: str, complaint: str) -> PlaybookError:
        line = line_of(self.text, json.dumps(id, ensure_ascii=False))
        return PlaybookError(f"{self.where}:{line}: skill {json.dumps(id)}: {complaint}")


def _read(id: str, row: Any, generation: _Generation, place: _Place) -> Bullet:
    if not isinstance(row, dict):
        raise place.refuse(id, "it is not an object; a skill has at least a section and a text")
    bullet = _bullet(id, row, generation, place)
    kept = dict(_kept(row, generation))
    bare = _with(bullet, kept)
    # A key that stands elsewhere than usual, or says what we say otherwise: then the whole is kept.
    made = _row(bare, generation)
    return bare if list(made.items()) == list(row.items()) else _with(bullet, {**kept, "as_it_was": row})


def _with(bullet: Bullet, kept: Mapping[str, Any]) -> Bullet:
    values = {name: getattr(bullet, name) for name in _READ}
    return Bullet(**values, extra={_OWN: kept} if kept else {})


_READ = ("id", "content", "section", "shown", "helpful", "harmful", "retired", "created_at", "updated_at")


def _bullet(id: str, row: Mapping[str, Any], generation: _Generation, place: _Place) -> Bullet:
    """What of a skill we have words for."""

    def text(key: str) -> str:
        value = row.get(key)
        if value is not None and not isinstance(value, str):
            raise place.refuse(id, f'"{key}" is not a text; put it in quotes')
        return value or ""

    def count(*keys: str) -> int:
        value = next((row[key] for key in keys if row.get(key) is not None), 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise place.refuse(id, f'"{keys[0]}" is not a count; write a whole number of at least 0')
        return value

    if generation.name == "v2":
        content = _joined(text("issue"), text("insight"))
        gone = row.get("active") is False
    else:
        content = text("content")
        gone = row.get("status") == "invalid"
    return Bullet(
        id=id,
        content=content,
        section=text("section") or InsightVerdict.HELPFUL.value,
        shown=count("used_count"),
        helpful=count("helpful", "helpful_count"),
        harmful=count("harmful", "harmful_count"),
        retired=_INACTIVE if gone else "",
        created_at=text("created_at"),
        updated_at=text("updated_at"),
    )


def _joined(issue: str, insight: str) -> str:
    """One strategy out of what comes up and what to do then."""
    if not issue or not insight or issue == insight:
        return insight or issue
    return f"{issue.rstrip(' .:')}: {insight}"


_SAID = frozenset(
    {
        *("id", "section", "content", "helpful", "harmful", "helpful_count", "harmful_count"),
        *("used_count", "created_at", "updated_at", "status", "active"),
    }
)
"""Keys of a skill whose value is in the bullet."""


def _kept(row: Mapping[str, Any], generation: _Generation) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in _SAID or (key == "status" and generation.name == "v0")}
    return {key: value for key, value in kept.items() if key not in generation.blanks or value != generation.blanks[key]}


def _row(bullet: Bullet, generation: _Generation) -> dict[str, Any]:
    """A skill as its generation writes it."""
    kept = mapping(bullet.extra.get(_OWN))
    said = _said_v2(bullet, kept) if generation.name == "v2" else _said(bullet, generation)
    if generation.name == "v0" and "status" not in kept:
        del said["status"]
    row: dict[str, Any] = {}
    for key in generation.keys:
        for source in (said, kept, generation.blanks):
            if key in source:
                row[key] = source[key]
                break
    known = {*generation.keys, "as_it_was"}
    if generation.name != "v0":
        # The oldest version falls over a key that it does not know.
        row |= {key: value for key, value in kept.items() if key not in known and key not in _ELSEWHERE}
    was = kept.get("as_it_was")
    return _overlaid(was, row, bullet, generation) if isinstance(was, Mapping) else row


_ELSEWHERE = frozenset(_V1_KEYS) | frozenset(_V2_KEYS)
"""Keys of another generation are no use in this one."""


def _said(bullet: Bullet, generation: _Generation) -> dict[str, Any]:
    said: dict[str, Any] = {"id": bullet.id, "section": bullet.section, "content": bullet.content}
    if "helpful" in generation.keys:
        said |= {"helpful": bullet.helpful, "harmful": bullet.harmful}
    return said | _dates(bullet) | {"status": "invalid" if bullet.retired else "active"}


def _said_v2(bullet: Bullet, kept: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"id": bullet.id, "section": bullet.section}
    if bullet.section not in ("context", "harness"):
        # As the package itself reads the sections of its older files.
        said |= {"section": "context", "keywords": ["_".join(bullet.section.casefold().split())]}
    issue, insight = kept.get("issue"), kept.get("insight")
    if not isinstance(issue, str) or _joined(issue, insight or "") != bullet.content:
        # The section "context" asks for both, and the package itself says one text twice, too.
        said |= {"issue": bullet.content, "insight": bullet.content}
    counts = {"used_count": bullet.shown, "helpful_count": bullet.helpful, "harmful_count": bullet.harmful}
    return said | {"active": not bullet.retired} | counts | _dates(bullet)


def _dates(bullet: Bullet) -> dict[str, str]:
    dates = {"created_at": bullet.created_at, "updated_at": bullet.updated_at}
    return {key: date for key, date in dates.items() if date}


def _overlaid(was: Mapping[str, Any], row: dict[str, Any], bullet: Bullet, generation: _Generation) -> dict[str, Any]:
    """The skill as it was read, with what has changed since."""
    try:
        before = _bullet(bullet.id, was, generation, _Place("", ""))
    except PlaybookError:
        return row
    then = _row(_with(before, _kept(was, generation)), generation)
    changed = {key: value for key, value in row.items() if then.get(key, _MISSING) != value}
    return {**was, **changed}


_MISSING = object()


def _write(playbook: Playbook, generation: _Generation) -> ExportedPlaybook:
    kept = mapping(playbook.extra.get(_OWN))
    same = kept.get("generation") == generation.name
    top = mapping(kept.get("top"))
    # Other systems know nobody who must approve: what is held would be used there.
    free = (bullet for bullet in playbook.bullets if bullet.retired or not bullet.held)
    bullets = tuple(bullet for bullet in free if not bullet.retired or _can_be_retired(bullet, generation))
    rows = {bullet.id: _row(bullet, generation) for bullet in bullets}
    numbers = [int(match[1]) for id in rows if (match := re.fullmatch(r".*-(\d{5,9})", id))]
    values: dict[str, Any] = {
        "next_id": max(numbers, default=0),
        "similarity_decisions": {},
        **top,
        "schema_version": "2",
        generation.top: rows,
        "sections": _sections(playbook, bullets, generation),
    }
    order = kept["order"] if same and "order" in kept else _order(generation, values)
    data = {key: values[key] for key in order if key in values}
    return ExportedPlaybook(_text(data, mapping(kept.get("style")) if same else {}), tuple(_losses(playbook, generation)))


def _can_be_retired(bullet: Bullet, generation: _Generation) -> bool:
    return "retired bullets" in generation.carried or "status" in mapping(bullet.extra.get(_OWN))


def _order(generation: _Generation, values: Mapping[str, Any]) -> list[str]:
    usual = ["schema_version"] if generation.name == "v2" else []
    usual += [generation.top, "sections", "next_id"]
    if generation.name != "v0":
        usual.append("similarity_decisions")
    known = {"schema_version", "bullets", "skills", "similarity_decisions", *usual}
    more = [key for key in values if key not in known]
    return usual + more


def _losses(playbook: Playbook, generation: _Generation) -> list[str]:
    carried = generation.carried
    if all(_can_be_retired(bullet, generation) for bullet in playbook.bullets if bullet.retired):
        carried |= {"retired bullets"}
    losses = lost(playbook, carried, _OWN)
    if generation.name == "v2":
        coined = sum(bullet.section not in ("context", "harness") for bullet in playbook.bullets)
        if coined:
            losses.append(
                f"the section is now a keyword ({coined} bullets): this format has only the sections context and harness"
            )
    reasons = {bullet.retired for bullet in playbook.bullets if bullet.retired} - {_INACTIVE}
    if reasons and "retired bullets" in carried:
        losses.append(f"why bullets were retired is left out ({len(reasons)} reasons)")
    other = [key for bullet in playbook.bullets for key in _foreign(bullet, generation)]
    if other:
        losses.append(f"what another generation said is left out ({', '.join(sorted(set(other)))})")
    return losses


def _foreign(bullet: Bullet, generation: _Generation) -> list[str]:
    kept = mapping(bullet.extra.get(_OWN))
    gone = [key for key, value in kept.items() if value and key in _ELSEWHERE and key not in generation.keys]
    # An issue and an insight are the content of the other generations.
    return [key for key in gone if key not in ("issue", "insight")]


def _sections(playbook: Playbook, written: tuple[Bullet, ...], generation: _Generation) -> Any:
    """The ids in each section: as they were read, without those that are not written and with those that are new."""
    kept = mapping(playbook.extra.get(_OWN))
    before = mapping(kept.get("top")).get("sections", {}) if kept.get("generation") == generation.name else {}
    if not isinstance(before, Mapping):
        return before
    left_out = {bullet.id for bullet in playbook.bullets} - {bullet.id for bullet in written}
    sections = {name: _without(ids, left_out) for name, ids in before.items()}
    listed = _listed(sections) | set(kept.get("unlisted", ()))
    for bullet in written:
        if bullet.id not in listed:
            coined = generation.name == "v2" and bullet.section not in ("context", "harness")
            ids = sections.setdefault("context" if coined else bullet.section, [])
            if isinstance(ids, list):
                ids.append(bullet.id)
    return sections


def _without(ids: Any, left_out: set[str]) -> Any:
    return [id for id in ids if not isinstance(id, str) or id not in left_out] if isinstance(ids, list) else ids


def _listed(sections: Mapping[str, Any]) -> set[str]:
    return {id for ids in sections.values() if isinstance(ids, list) for id in ids if isinstance(id, str)}


_STYLES: tuple[dict[str, Any], ...] = (
    {},
    {"newline": True},
    {"ascii": True},
    {"ascii": True, "newline": True},
    {"indent": None},
    {"indent": None, "newline": True},
    {"indent": None, "ascii": True},
    {"indent": 4},
    {"indent": 4, "newline": True},
)
"""How a file may be laid out. The first is the package's own."""


def _style(data: Any, text: str) -> Mapping[str, Any]:
    return next((style for style in _STYLES if _text(data, style) == text), {})


def _text(data: Any, style: Mapping[str, Any]) -> str:
    text = json.dumps(data, indent=style.get("indent", 2), ensure_ascii=bool(style.get("ascii")))
    return text + "\n" * bool(style.get("newline"))
