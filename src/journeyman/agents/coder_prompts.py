"""How a coding task, and what running the code found, are put to a model."""

from collections.abc import Sequence

from journeyman.agents import prompts
from journeyman.agents.prompts import CITE, PLAYBOOK, line
from journeyman.models.base import Dialect, Message
from journeyman.playbook import Bullet
from journeyman.task import Task

FORMAT = """\
You write programs that do what is asked, whole and as small as they can be. They run in an isolated sandbox: Python with its \
standard library, no network, nobody to answer a prompt, and no server that runs on without end.

Reply with each file in a fenced block that names it:
```python file=main.py
print("hello")
```
Write whole files, under the names that the task gives. A file that you do not repeat stays as it was. Acceptance checks that \
you cannot see will run on your files; special-casing the values of one failure does not pass them."""
FAILED = """\
That did not do yet:
{found}

Find the cause, and reply with every file that changes, whole, in the same form."""
LONGEST = 6000
"""Characters of what was found that a model is shown; of a longer text the middle is left out."""


def write(task: Task, bullets: Sequence[Bullet], dialect: Dialect) -> tuple[Message, ...]:
    """The prompt of the first round."""
    if dialect == "terse":
        return prompts.answer(task, bullets, dialect)
    system = FORMAT
    if bullets:
        system += f"\n\n{CITE}" + PLAYBOOK.format(bullets="\n".join(line(bullet) for bullet in bullets))
    return (Message("system", system), Message("user", task.question))


def repair(messages: Sequence[Message], reply: str, found: str) -> tuple[Message, ...]:
    """The prompt of the next round, after what the last one was found to be."""
    short = found if len(found) <= LONGEST else f"{found[: LONGEST // 2]}\n[…]\n{found[-LONGEST // 2 :]}"
    return (*messages, Message("assistant", reply or "(nothing)"), Message("user", FAILED.format(found=short)))
