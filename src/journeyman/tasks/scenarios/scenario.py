"""What a scenario is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from journeyman.core.task import Split, Task
from journeyman.io.markdown import fenced

INSTRUCTIONS = {
    "TEXT_GENERATION": "Write what is asked for, whole, and nothing around it. Meet every requirement by name.",
    "CODE_REVIEW": (
        "Review the code. For every fault say where it is (file and line), what goes wrong because of it, and how to mend it; "
        "the worst first. Meet every requirement by name."
    ),
}


class TaskType(StrEnum):
    """What kind of work it is. Only the first is run while the agent works."""

    CODE_INTERPRET = "CODE_INTERPRET"
    TEXT_GENERATION = "TEXT_GENERATION"
    CODE_REVIEW = "CODE_REVIEW"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A check that the work must pass."""

    name: str
    kind: Literal["shell", "pytest"]
    text: str
    """A shell script, or a file of tests. The agent never sees it."""
    hidden: bool = False
    """The agent is not told what it found either. It counts all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing to build, write or review."""

    name: str
    goal: str
    requirements: tuple[str, ...] = ()
    task_type: TaskType = TaskType.CODE_INTERPRET
    category: str = "custom"
    """For the summary. What is learned in one category is shown in all."""
    checks: tuple[Acceptance, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """What the agent is given, by relative path."""
    setup: str = ""
    """A shell script that is run before the code and before each check."""

    @property
    def runs(self) -> bool:
        """Whether the agent writes code that is run."""
        return self.task_type is TaskType.CODE_INTERPRET

    @property
    def brief(self) -> str:
        """All that the agent is told of it: goal, requirements, and the files that it is given."""
        wanted = "\n".join(f"- {requirement}" for requirement in self.requirements)
        parts = [self.goal, *([f"Requirements:\n{wanted}"] if wanted else [])]
        parts += [f"Given, {path}:\n{fenced(text)}" for path, text in self.files.items()]
        return "\n\n".join(parts)

    def task(self, split: Split = Split.TRAIN) -> Task:
        """As the trainer takes it. The checks stay behind: whoever reflects on an attempt must not copy them into a lesson."""
        names = ", ".join(check.name for check in self.checks)
        return Task(
            id=self.name,
            question=self.brief,
            answer=f"Whatever passes its acceptance checks: {names}" if names else "Whatever meets every requirement",
            split=split,
            instructions=INSTRUCTIONS.get(self.task_type, ""),
        )
