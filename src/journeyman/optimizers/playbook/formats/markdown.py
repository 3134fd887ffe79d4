"""A playbook as agents read it in files of theirs: an Agent Skill, a part of AGENTS.md or CLAUDE.md, a prompt of a registry.

In all of them a bullet is an item of a Markdown list, under a heading for its section and, but for `general`, one above it for
its domain. What was written so is read back; of what somebody else wrote, each item of a list is a bullet of the domain
`general` under the heading above it, and what is no item is passed over.

Sources: agentskills.io/specification; agents.md; Langfuse's API reference, `POST /api/public/v2/prompts`; MLflow's
`mlflow.genai.register_prompt`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.playbook import Bullet, InsightVerdict, Playbook, bullet_id, normalised
from journeyman.optimizers.playbook.formats import MARK, ExportedPlaybook, blocks, json_of, line_of, lost, mapping

_HEADINGS = {
    InsightVerdict.HELPFUL.value: "Do",
    InsightVerdict.HARMFUL.value: "Avoid",
    InsightVerdict.NEUTRAL.value: "Good to know",
}
_SECTIONS = {heading: section for section, heading in _HEADINGS.items()}
_GENERAL = "general"
_TITLE = "Learned from experience"
_INTRODUCTION = "Learned from earlier attempts at such tasks."
_MADE_BY = "  made-by: journeyman"
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*\S)")
_ITEM = re.compile(r" ?(?:[-*+]|\d{1,9}[.)])[ \t]+(.*)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEAD = re.compile(r"\ufeff?---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


# Written.


def write_skill(playbook: Playbook, title: str = "learned-playbook") -> ExportedPlaybook:
    """The text of `SKILL.md`. `title` is the skill's name, which its folder has, too.

    Raises:
        InputError: The name is not one that a skill can have: small letters, digits and hyphens, at most 64.
    """
    if not re.fullmatch(r"(?=.{1,64}$)[a-z0-9]+(-[a-z0-9]+)*", title):
        raise InputError(f"a skill cannot be called {title!r}; name the folder with small letters, digits and single hyphens")
    head = ["---", f"name: {title}", f"description: {json.dumps(_description(playbook), ensure_ascii=False)}"]
    head += ["metadata:", _MADE_BY, "---", "", f"# {title.replace('-', ' ').capitalize()}", "", _INTRODUCTION, ""]
    text = "\n".join([*head, *_lists(playbook, 2)]).rstrip("\n") + "\n"
    return ExportedPlaybook(text, (*_ids(playbook), *lost(playbook, {"domains"}, "markdown")))


def write_agents(playbook: Playbook, title: str = "playbook") -> ExportedPlaybook:
    """A part of AGENTS.md or CLAUDE.md between its marks; `in_block` puts it into the file.

    Args:
        title: Tells it from other parts there.

    Raises:
        InputError: It is no single word.
    """
    if not re.fullmatch(r"[\w.-]{1,64}", title):
        raise InputError(f"a part of a file cannot be called {title!r}; use letters, digits, dots and hyphens, at most 64")
    begin, end = (f"<!-- journeyman:{which} {title} -->" for which in ("begin", "end"))
    note = "<!-- Written by `journeyman playbook export`: what stands between these marks is replaced by the next one. -->"
    lines = [begin, note, f"## {_TITLE}", "", *_lists(playbook, 3)]
    text = "\n".join(lines).rstrip("\n") + f"\n\n{end}\n"
    return ExportedPlaybook(text, (*_ids(playbook), *lost(playbook, {"domains"}, "markdown")))


def write_langfuse(playbook: Playbook, title: str = "playbook") -> ExportedPlaybook:
    """A text prompt, as Langfuse's API takes and gives it. Ids and votes stand in its `config`."""
    rows = [
        {"id": each.id, "content": each.content, "domain_id": each.domain, "section": each.section,
         "helpful_count": each.helpful, "harmful_count": each.harmful}
        for each in playbook.active
    ]  # fmt: skip
    prompt = {
        "type": "text",
        "name": title,
        "prompt": _prompt(playbook),
        "config": {MARK: {"bullets": rows}},
        "labels": [],
        "tags": [MARK],
    }
    return ExportedPlaybook(_json(prompt), (*_variables(playbook), *lost(playbook, {"domains", "votes"}, "markdown")))


def write_mlflow(playbook: Playbook, title: str = "playbook") -> ExportedPlaybook:
    """What `mlflow.genai.register_prompt` takes, by name."""
    message = f"{len(playbook.active)} bullets, by journeyman playbook export"
    prompt = {"name": title, "template": _prompt(playbook), "commit_message": message, "tags": {"made-by": MARK}}
    return ExportedPlaybook(_json(prompt), (*_ids(playbook), *_variables(playbook), *lost(playbook, {"domains"}, "markdown")))


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _prompt(playbook: Playbook) -> str:
    return "\n".join([f"# {_TITLE}", "", *_lists(playbook, 2)]).rstrip("\n") + "\n"


def _ids(playbook: Playbook) -> list[str]:
    return ["ids are left out"] if playbook.bullets else []


def _variables(playbook: Playbook) -> list[str]:
    count = sum("{{" in bullet.content for bullet in playbook.active)
    return [f"what stands in {{{{…}}}} is a variable there ({count} of {len(playbook.active)} bullets)"] if count else []


def _description(playbook: Playbook) -> str:
    named = [domain for domain in dict.fromkeys(bullet.domain for bullet in playbook.active) if domain != _GENERAL]
    work = f" on {', '.join(named)}" if named else ""
    return f"Strategies learned from experience{work}, {len(playbook.active)} in all. Use when working on such tasks."[:1024]


def _lists(playbook: Playbook, level: int) -> Iterator[str]:
    domains = list(dict.fromkeys(bullet.domain for bullet in playbook.active))
    named = domains not in ([], [_GENERAL])
    for domain in domains:
        if named:
            yield from (f"{'#' * level} {_line(domain)}", "")
        yield from _sections(playbook.of(domain), "#" * (level + named))


def _sections(bullets: Sequence[Bullet], mark: str) -> Iterator[str]:
    for section in dict.fromkeys(bullet.section for bullet in bullets):
        yield from (f"{mark} {_HEADINGS.get(section) or _line(section)}", "")
        for bullet in bullets:
            if bullet.section == section:
                yield _item(bullet.content)
        yield ""


def _line(text: str) -> str:
    """A heading has one line, and something on it."""
    return _shielded(" ".join(text.split())) or "Other"


def _shielded(text: str) -> str:
    """Nothing in it is taken for a mark of ours."""
    return text.replace("<!--", "&lt;!--")


def _unshielded(text: str) -> str:
    return text.replace("&lt;!--", "<!--")


def _item(content: str) -> str:
    """A text of several lines stays one item when it is indented."""
    lines = _shielded(content.strip()).splitlines() or [""]
    return "\n".join(f"{'- ' if at == 0 else '  '}{line}".rstrip() for at, line in enumerate(lines))


# Read.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """An item of a list, and the headings that it stands under, the outermost first."""

    text: str
    headings: tuple[str, ...]


def read_skill(text: str, where: str) -> Playbook:
    """The bullets of a `SKILL.md`."""
    head = _HEAD.match(text.replace("\r\n", "\n"))
    return _playbook(text, where, ours=head is not None and _MADE_BY in head[1].split("\n"))


def read_agents(text: str, where: str) -> Playbook:
    """The bullets of our parts of an AGENTS.md or CLAUDE.md; of a file that has none, all items of its lists."""
    parts = list(blocks(text, where))
    if not parts:
        return _playbook(text, where, ours=False)
    bullets = {bullet.id: bullet for part in parts for bullet in _bullets(_items(part), ours=True)}
    return Playbook(bullets=tuple(bullets.values()))


def read_langfuse(text: str, where: str) -> Playbook:
    """The bullets of a prompt of Langfuse, a text or a chat. One that is still as it was exported keeps its id and votes."""
    data = json_of(text, where)
    config = mapping(mapping(data).get("config")).get(MARK)
    tags = mapping(data).get("tags")
    ours = isinstance(tags, list) and MARK in tags
    found = _playbook(_said(mapping(data).get("prompt"), '"prompt"', text, where), where, ours=ours)
    rows = mapping(config).get("bullets")
    known = {_key(row): row for row in rows if isinstance(row, dict)} if isinstance(rows, list) else {}
    return replace(
        found, bullets=tuple(_with(bullet, known.get((bullet.domain, normalised(bullet.content)))) for bullet in found.bullets)
    )


def read_mlflow(text: str, where: str) -> Playbook:
    """The bullets of a prompt of MLflow, a text or a chat."""
    data = mapping(json_of(text, where))
    ours = mapping(data.get("tags")).get("made-by") == MARK
    return _playbook(_said(data.get("template"), '"template"', text, where), where, ours=ours)


def _said(prompt: object, key: str, text: str, where: str) -> str:
    """A prompt's text; of a chat what its messages say."""
    if isinstance(prompt, list):
        parts = [mapping(each).get("content") for each in prompt]
        prompt = "\n\n".join(part for part in parts if isinstance(part, str))
    if not isinstance(prompt, str):
        raise PlaybookError(f"{where}:{line_of(text, key)}: {key} is neither a text nor a list of messages; mend it")
    return prompt


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("domain_id")), normalised(str(row.get("content")))


def _with(bullet: Bullet, row: Mapping[str, Any] | None) -> Bullet:
    """What the prompt's `config` says of it; a person may have changed that."""
    if row is None:
        return bullet
    counts: dict[str, Any] = {
        name: count for name in ("helpful", "harmful") if isinstance(count := row.get(f"{name}_count"), int) and count >= 0
    }
    id = row.get("id")
    return replace(bullet, id=id if isinstance(id, str) and id else bullet.id, **counts)


def _playbook(text: str, where: str, *, ours: bool) -> Playbook:
    bullets: dict[str, Bullet] = {}
    for bullet in _bullets(_items(text), ours=ours):
        bullets.setdefault(bullet.id, bullet)
    if not bullets and not ours:
        raise PlaybookError(f"{where}:1: no list stands here; a bullet is an item of one, as in `- Write amounts in cents.`")
    return Playbook(bullets=tuple(bullets.values()))


def _bullets(items: Iterator[_Read], *, ours: bool) -> Iterator[Bullet]:
    for item in items:
        # Ours stands under a title, perhaps a domain, and a section.
        domain = item.headings[-2] if ours and len(item.headings) > 2 else _GENERAL
        section = item.headings[-1] if item.headings else ""
        section = _SECTIONS.get(section, section) or InsightVerdict.HELPFUL.value
        yield Bullet(id=bullet_id(domain, item.text), content=item.text, domain=domain, section=section)


def _items(text: str) -> Iterator[_Read]:
    """The items of all lists that are not within another one, with what belongs to them."""
    text = text.replace("\r\n", "\n")
    head = _HEAD.match(text)
    headings: list[tuple[int, str]] = []
    item: list[str] = []
    fence = ""
    for line in [*text[head.end() if head else 0 :].split("\n"), "#"]:
        if fence:
            fence = "" if line.strip().startswith(fence) else fence
        elif item and (line.startswith(("  ", "\t")) or not line.strip()):
            item.append(line[2:] if line.startswith("  ") else line.removeprefix("\t"))
        else:
            found, heading = _ITEM.fullmatch(line), _HEADING.fullmatch(line)
            mark = _FENCE.match(line)
            if item and not (found or mark or line.startswith(("#", "<!--")) or not item[-1].strip()):
                # A paragraph goes on without being indented.
                item.append(line.strip())
                continue
            if content := _unshielded("\n".join(item).strip()):
                yield _Read(text=content, headings=tuple(_unshielded(name) for _, name in headings))
            item = [found[1]] if found else []
            fence = mark[1] if mark else ""
            if heading:
                level = len(heading[1])
                headings = [*((at, name) for at, name in headings if at < level), (level, heading[2])]
