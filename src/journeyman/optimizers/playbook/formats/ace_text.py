"""The text playbooks of the ACE project, in both variants.

    ace        [calc-00002] helpful=3 harmful=0 :: Round at the end, not on the way.
    appworld   [shr-00005] Always look at the API's specification before calling it.

under headers `## SECTION`. What a file has beyond that (blank lines, odd spacing, prose, an id that is used twice) is kept in
`extra["ace"]`, so that a file that was read and not changed is written again byte for byte.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from journeyman.core.playbook import Bullet, InsightVerdict, Playbook
from journeyman.optimizers.playbook.formats import ExportedPlaybook, lost, mapping, unused

_OWN = "ace"
_VOTED = re.compile(r"\s*(?:[-*]\s+)?\[([^\]\n]+)\]\s*helpful=(\d{1,9})\s*harmful=(\d{1,9})\s*::\s*(.*)", re.DOTALL)
# Without counters an id must look like one, or a list in a piece of code would be a bullet.
_BARE = re.compile(r"\s*(?:[-*]\s+)?\[([A-Za-z][\w.:~#-]*[-\d][\w.:~#-]*)\](?:\s+(.*)|)", re.DOTALL)
_UNNAMED = "OTHERS"
"""The section of bullets under no header, or under one without a name."""
_BLANK = [""]
"""What stands after a section's last bullet: an empty line, or the file's last newline."""

_SECTIONS = {
    "ace": {
        InsightVerdict.HELPFUL.value: "STRATEGIES & INSIGHTS",
        InsightVerdict.HARMFUL.value: "COMMON MISTAKES TO AVOID",
        InsightVerdict.NEUTRAL.value: "OTHERS",
    },
    "appworld": {
        InsightVerdict.HELPFUL.value: "STRATEGIES AND HARD RULES",
        InsightVerdict.HARMFUL.value: "COMMON MISTAKES AND CORRECT STRATEGIES",
        InsightVerdict.NEUTRAL.value: "OTHERS",
    },
}


@dataclass(slots=True)
class _Item:
    """A bullet as it stands in the file."""

    before: list[str]
    """Lines above it that belong to none."""
    lines: list[str]


@dataclass(slots=True)
class _Section:
    name: str
    header: str | None
    """The line itself; `None` for what stands above all headers."""
    items: list[_Item] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Said:
    """What the lines of a bullet say."""

    id: str
    helpful: int
    harmful: int
    content: str
    voted: bool
    """Whether there are counters."""


def read(text: str, where: str) -> Playbook:
    """The playbook in a text of either variant. Whatever the text holds, it is read: `where` is never complained about."""
    sections = list(_sections(text.split("\n")))
    said = [[_parse("\n".join(item.lines)) for item in section.items] for section in sections]
    variant = "ace" if any(one.voted for group in said for one in group) else "appworld"
    names = [section.name for section in sections]
    bullets: dict[str, Bullet] = {}
    for block, (section, group) in enumerate(zip(sections, said, strict=True)):
        for item, one in zip(section.items, group, strict=True):
            id = unused(one.id, bullets)
            kept: dict[str, Any] = {}
            if id != one.id:
                kept["id"] = one.id
            if (raw := "\n".join(item.lines)) != _canonical(one, variant):
                kept["raw"] = raw
            if item.before:
                kept["before"] = item.before
            if names.index(section.name) != block:
                kept["block"] = block
            bullets[id] = Bullet(
                id=id,
                content=one.content,
                section=section.name,
                helpful=one.helpful,
                harmful=one.harmful,
                extra={_OWN: kept} if kept else {},
            )
    layout = {"variant": variant, "sections": [_kept(section) for section in sections]}
    return Playbook(bullets=tuple(bullets.values()), extra={_OWN: layout})


def write_ace(playbook: Playbook) -> ExportedPlaybook:
    """With counters. Verdicts become ACE's own sections; retired bullets are left out."""
    return _write(playbook, "ace", {"votes"})


def write_appworld(playbook: Playbook) -> ExportedPlaybook:
    """Without counters."""
    return _write(playbook, "appworld", set())


def _sections(lines: list[str]) -> Iterator[_Section]:
    section = _Section(_UNNAMED, None)
    loose: list[str] = []
    for line in lines:
        if line.startswith("##") and not line.startswith("###"):
            section.tail = loose
            if section.header is not None or section.items or section.tail:
                yield section
            section, loose = _Section(line[2:].strip().rstrip(":").strip() or _UNNAMED, line), []
        elif _VOTED.fullmatch(line) or _BARE.fullmatch(line):
            section.items.append(_Item(loose, [line]))
            loose = []
        elif line.strip() and section.items:
            # A bullet goes on, and the blank lines above are part of it.
            section.items[-1].lines += [*loose, line]
            loose = []
        else:
            loose.append(line)
    section.tail = loose
    yield section


def _parse(raw: str) -> _Said:
    if voted := _VOTED.fullmatch(raw):
        return _Said(voted[1], int(voted[2]), int(voted[3]), voted[4].strip(), True)
    bare = _BARE.fullmatch(raw)
    return _Said(bare[1], 0, 0, (bare[2] or "").strip(), False) if bare else _Said("", 0, 0, raw, False)


def _canonical(said: _Said, variant: str) -> str:
    if variant == "ace":
        return f"[{said.id}] helpful={said.helpful} harmful={said.harmful} :: {said.content}"
    return f"[{said.id}] {said.content}"


def _kept(section: _Section) -> str | dict[str, Any]:
    """A section as it is remembered: by its name alone, if the rest follows from it."""
    more: dict[str, Any] = {}
    if section.header != f"## {section.name}":
        more["header"] = section.header
    if section.tail != _BLANK:
        more["tail"] = section.tail
    return {"name": section.name, **more} if more else section.name


def _remembered(one: Any) -> _Section:
    if isinstance(one, str):
        return _Section(one, f"## {one}", tail=_BLANK)
    name = str(one.get("name", _UNNAMED))
    return _Section(name, one.get("header", f"## {name}"), tail=list(one.get("tail", _BLANK)))


def _write(playbook: Playbook, variant: str, carried: set[str]) -> ExportedPlaybook:
    layout = mapping(playbook.extra.get(_OWN))
    sections = [_remembered(one) for one in layout.get("sections", ())]
    raws_fit = layout.get("variant") == variant
    losses = lost(playbook, carried, _OWN)
    changed: defaultdict[str, int] = defaultdict(int)
    for bullet in playbook.active:
        kept = mapping(bullet.extra.get(_OWN))
        section = _place(bullet, kept, sections, _SECTIONS[variant])
        line = _line(bullet, kept, variant, raws_fit, changed)
        section.items.append(_Item(list(kept.get("before", ())), [line]))
    losses += [f"{what}: {count} of {len(playbook.active)} bullets" for what, count in changed.items()]
    return ExportedPlaybook("\n".join(_lines(sections)), tuple(losses))


def _lines(sections: list[_Section]) -> Iterator[str]:
    for section in sections:
        if section.header is not None:
            yield section.header
        for item in section.items:
            yield from item.before
            yield from item.lines
        yield from section.tail


def _place(bullet: Bullet, kept: Mapping[str, Any], sections: list[_Section], names: Mapping[str, str]) -> _Section:
    """The section of the file where a bullet stands, which is made if there is none."""
    block = kept.get("block")
    if isinstance(block, int) and 0 <= block < len(sections) and sections[block].name == bullet.section:
        return sections[block]
    name = " ".join(names.get(bullet.section, bullet.section).split()).rstrip(":") or _UNNAMED
    for section in sections:
        if section.name in (bullet.section, name):
            return section
    sections.append(_Section(name, f"## {name}", tail=_BLANK))
    return sections[-1]


def _line(bullet: Bullet, kept: Mapping[str, Any], variant: str, raws_fit: bool, changed: dict[str, int]) -> str:
    """The bullet's line: as it was read if it says that still, else as it is usually written."""
    voted = variant == "ace"
    votes = (bullet.helpful, bullet.harmful) if voted else (0, 0)
    said = _Said(str(kept.get("id", bullet.id)), *votes, bullet.content, voted)
    raw = kept.get("raw")
    if raws_fit and isinstance(raw, str):
        was = _parse(raw)
        if replace(was, voted=voted) == said:
            return raw
    if not (_VOTED if voted else _BARE).fullmatch(_canonical(replace(said, content=""), variant)):
        changed["an id was changed to fit into brackets"] += 1
        fitting = re.sub(r"[^\w.:~#-]+", "-", said.id)
        said = replace(said, id=f"x-{fitting}")
    line = _canonical(said, variant)
    if not _holds(line, said):
        changed["line ends became spaces"] += 1
        line = _canonical(replace(said, content=" ".join(said.content.split())), variant)
    return line


def _holds(line: str, said: _Said) -> bool:
    """Whether a reader would find this bullet in these lines, and nothing else."""
    section, *others = _sections(line.split("\n"))
    return not others and len(section.items) == 1 and not section.tail and _parse("\n".join(section.items[0].lines)) == said
