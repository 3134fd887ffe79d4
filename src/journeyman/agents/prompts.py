"""How a task and the chosen bullets are put to a model."""

from collections.abc import Sequence

from journeyman.models.base import Dialect, Message
from journeyman.playbook import Bullet
from journeyman.task import Task

FULL = """\
{instructions}Think step by step, then end with two lines:
Answer: <the final answer alone>
Used: <ids of the strategies you used, such as b-1a2b3c, or none>"""

PLAYBOOK = """\


Strategies that were learned from earlier attempts at such tasks. Follow those that apply; a strategy marked "avoid" says what \
went wrong before.
{bullets}"""


def answer(task: Task, bullets: Sequence[Bullet], dialect: Dialect) -> tuple[Message, ...]:
    """The prompt of one attempt."""
    if dialect == "terse":
        return (Message("system", terse_rules([bullet.content for bullet in bullets])), Message("user", task.question))
    system = task.instructions or FULL.format(instructions="")
    if bullets:
        system += PLAYBOOK.format(bullets="\n".join(line(bullet) for bullet in bullets))
    return (Message("system", system), Message("user", task.question))


def terse_rules(rules: Sequence[str]) -> str:
    """The system message that the embedded model was trained on."""
    return "\n".join(["reply", *(f"- {rule}" for rule in rules)])


def line(bullet: Bullet) -> str:
    """A bullet as it stands in a prompt: one line, whatever it holds."""
    mark = "avoid: " if bullet.section == "harmful" else ""
    return f"[{bullet.id}] {mark}{' '.join(bullet.content.split())}"
