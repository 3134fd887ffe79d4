"""How a task and the chosen bullets are put to a model."""

import re
from collections.abc import Sequence

from journeyman.models.base import Dialect, Message
from journeyman.playbook import Bullet
from journeyman.task import Task

STEPS = "Think step by step."
CITE = "Then name the strategies that you used, on a line of their own: Used: <their ids, or none>"
CLOSE = "End with a line of its own: Answer: <the final answer alone>"
"""Last, so that the number that a check finds last is the answer and not part of an id."""

PLAYBOOK = """\


Strategies that were learned from earlier attempts at such tasks. Follow those that apply; a strategy marked "avoid" says what \
went wrong before.
{bullets}"""


_HEADER = PLAYBOOK.partition("{")[0].rstrip("\n")
_BULLET = re.compile(r"\[[^\]\n]+\] ")


def answer(task: Task, bullets: Sequence[Bullet], dialect: Dialect) -> tuple[Message, ...]:
    """The prompt of one attempt."""
    if dialect == "terse":
        return (Message("system", terse_rules([bullet.content for bullet in bullets])), Message("user", task.question))
    system = task.instructions or "\n".join([STEPS, *([CITE] if bullets else []), CLOSE])
    if bullets:
        system += PLAYBOOK.format(bullets="\n".join(line(bullet) for bullet in bullets))
    return (Message("system", system), Message("user", task.question))


def cited(reply: str, shown: Sequence[Bullet]) -> tuple[str, ...]:
    """The ids of shown bullets that the reply says it used; an id that was not shown is an invention and left out."""
    named = " ".join(said for said in reply.splitlines() if _is_citation(said))
    return tuple(bullet.id for bullet in shown if re.search(rf"(?<![\w-]){re.escape(bullet.id)}(?![\w-])", named))


def without_bullets(system: str, *, terse: bool = False) -> str:
    """A system message as it would be with no bullet in it; `terse` where it is of the embedded model's kind."""
    if terse:
        return terse_rules(())
    before, found, after = system.partition(_HEADER)
    if not found:
        return system
    rest = after.lstrip("\n").split("\n")
    behind = next((at for at, said in enumerate(rest) if not _BULLET.match(said)), len(rest))
    left = "\n".join([before, *rest[behind:]])
    return left.removesuffix(f"\n\n{CITE}").replace(f"{CITE}\n", "", 1)


def without_citation(reply: str) -> str:
    """A reply without the line in which it names the strategies that it used."""
    lines = reply.split("\n")
    return "\n".join(said for said in lines if not _is_citation(said)) if any(map(_is_citation, lines)) else reply


def terse_rules(rules: Sequence[str]) -> str:
    """The system message that the embedded model was trained on."""
    return "\n".join(["reply", *(f"- {rule}" for rule in rules)])


def line(bullet: Bullet) -> str:
    """A bullet as it stands in a prompt: one line, whatever it holds."""
    mark = "avoid: " if bullet.section == "harmful" else ""
    return f"[{bullet.id}] {mark}{' '.join(bullet.content.split())}"


def _is_citation(said: str) -> bool:
    return said.strip(" *#-").casefold().startswith("used:")
