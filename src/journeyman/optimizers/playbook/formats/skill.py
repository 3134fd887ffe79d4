"""A playbook as an Agent Skill: a folder with a `SKILL.md`, which many agents read by themselves.

The file begins with YAML that says the skill's name (the folder's name, too) and when to use it; what was learned follows as
lists. It can be written and not read back: ids and counts are not in it.
"""

import json
import re

from journeyman.core.errors import InputError
from journeyman.core.playbook import Bullet, InsightVerdict, Playbook
from journeyman.optimizers.playbook.formats import ExportedPlaybook, lost

FILE = "SKILL.md"
_HEADINGS = {
    InsightVerdict.HELPFUL.value: "Do",
    InsightVerdict.HARMFUL.value: "Avoid",
    InsightVerdict.NEUTRAL.value: "Good to know",
}


def write(playbook: Playbook, name: str = "learned-playbook") -> ExportedPlaybook:
    """The text of `SKILL.md`.

    Raises:
        InputError: The name is not one that a skill can have: small letters, digits and hyphens, at most 64.
    """
    if not re.fullmatch(r"(?=.{1,64}$)[a-z0-9]+(-[a-z0-9]+)*", name):
        raise InputError(f"a skill cannot be called {name!r}; name the folder with small letters, digits and single hyphens")
    domains = list(dict.fromkeys(bullet.domain for bullet in playbook.active))
    lines = [
        "---",
        f"name: {name}",
        f"description: {json.dumps(_description(playbook, domains), ensure_ascii=False)}",
        "---",
        "",
    ]
    lines += [f"# {name.replace('-', ' ').capitalize()}", "", "Learned from earlier attempts at such tasks.", ""]
    for domain in domains:
        if len(domains) > 1:
            lines += [f"## {domain}", ""]
        lines += _domain(playbook.of(domain), "###" if len(domains) > 1 else "##")
    ids = ["ids are left out"] if playbook.bullets else []
    return ExportedPlaybook("\n".join(lines).rstrip("\n") + "\n", (*ids, *lost(playbook, {"domains"}, "skill")))


def _description(playbook: Playbook, domains: list[str]) -> str:
    named = [domain for domain in domains if domain != "general"]
    work = f" on {', '.join(named)}" if named else ""
    return f"Strategies learned from experience{work}, {len(playbook.active)} in all. Use when working on such tasks."[:1024]


def _domain(bullets: tuple[Bullet, ...], level: str) -> list[str]:
    lines: list[str] = []
    for section in dict.fromkeys(bullet.section for bullet in bullets):
        lines += [f"{level} {_HEADINGS.get(section, section)}", ""]
        # A text of several lines stays one item of the list when it is indented.
        lines += ["- " + "\n  ".join(b.content.splitlines()) for b in bullets if b.section == section]
        lines.append("")
    return lines
