"""The memory of Dynamic Cheatsheet: items with a description, an example and a count of uses, under headings. Read only."""

import re
from collections.abc import Iterator

from journeyman.core.errors import PlaybookError
from journeyman.core.playbook import Bullet, InsightVerdict, Playbook, bullet_id
from journeyman.optimizers.playbook.formats import line_of

_ITEM = re.compile(r"<memory_item>(.*?)</memory_item>(?:\s*\**\s*Count:\**\s*(\d+))?", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?(?:description|example|memory_item|cheatsheet)>", re.IGNORECASE)
_HEADING = re.compile(r"^[ \t]*(?:#+[ \t]*(\S.*?)|([A-Z][A-Z &,/-]{4,}))[ \t]*:?[ \t]*$", re.MULTILINE)


def read(text: str, where: str) -> Playbook:
    """The playbook in a cheatsheet. A count of uses is how often a bullet was shown.

    Raises:
        PlaybookError: It ends within an item.
    """
    opened, closed = (len(re.findall(tag, text, re.IGNORECASE)) for tag in ("<memory_item>", "</memory_item>"))
    if opened != closed:
        line = line_of(text, "<memory_item>", nth=max(opened, 1))
        raise PlaybookError(f"{where}:{line}: an item begins here and does not end; bring the file back from a copy")
    bullets: dict[str, Bullet] = {}
    for bullet in _bullets(text):
        bullets.setdefault(bullet.id, bullet)
    return Playbook(bullets=tuple(bullets.values()))


def _bullets(text: str) -> Iterator[Bullet]:
    section, end = InsightVerdict.HELPFUL.value, 0
    for item in _ITEM.finditer(text):
        headings = _HEADING.findall(text[end : item.start()])
        if headings:
            section = " ".join("".join(headings[-1]).split())
        end = item.end()
        content = "\n".join(line.rstrip() for line in _TAG.sub("\n", item[1]).splitlines() if line.strip()).strip()
        if content:
            yield Bullet(id=bullet_id("general", content), content=content, section=section, shown=int(item[2] or 0))
