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
    named = " ".join(line for line in reply.splitlines() if line.strip(" *#-").casefold().startswith("used:"))
    return tuple(bullet.id for bullet in shown if re.search(rf"(?<![\w-]){re.escape(bullet.id)}(?![\w-])", named))


def terse_rules(rules: Sequence[str]) -> str:
    """The system message that the embedded model was trained on."""
    return "\n".join(["reply", *(f"- {rule}" for rule in rules)])


def line(bullet: Bullet) -> str:
    """A bullet as it stands in a prompt: one line, whatever it holds."""
    mark = "avoid: " if bullet.section == "harmful" else ""
    return f"[{bullet.id}] {mark}{' '.join(bullet.content.split())}"
