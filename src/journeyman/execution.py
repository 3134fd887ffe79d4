"""What an executor is told, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from journeyman.agents.answer import MakeAgent
from journeyman.agents.coder import ROUNDS
from journeyman.agents.workshop import last_files
from journeyman.capture.collector import Collector
from journeyman.errors import InputError
from journeyman.learn.playbook.background import LearningStats
from journeyman.learn.playbook.progress import Spent
from journeyman.playbook import Bullet
from journeyman.score import Score
from journeyman.task import Task
from journeyman.tasks.base import Verifier
from journeyman.tasks.scenarios import TaskType
from journeyman.trace import Trace, total


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorConfig:
    """Everything that an executor can be told."""

    ptc_base_url: str = ""
    """The code service where code is run; without one it is run in the sandbox of this machine."""
    skillbook_path: str | Path = "playbooks/skillbook.json"
    """The playbook that is used and that grows. It need not be there yet, and other processes may learn into it too."""
    async_learning: bool = True
    """Learn behind the answer. Without, an answer is returned once what it teaches is in the file."""
    model: str = "openai:gpt-5-mini"
    """What does the work."""
    reflector_model: str = ""
    """What draws the lessons. Unless it is named, it is openai:gpt-5-nano beside the default model, and else `model` itself."""
    base_url: str = ""
    """Another server for models named without one."""
    key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key for `base_url`; empty when it needs none."""
    task_type: TaskType = TaskType.CODE_INTERPRET
    """What kind of work a goal is that is given as text."""
    domain: str = "general"
    """Whose bullets are shown and learned. Training on scenarios learns in "general"."""
    agent: MakeAgent | None = None
    """Who does the work, instead of the agent that writes code and runs it."""
    verifier: Verifier | None = None
    """Judges every result. Without one, checks do, and where a goal has none nobody does (see `Execution.success`)."""
    rounds: int = ROUNDS
    """Calls at most for one goal: the first one writes, the others repair."""
    queue_size: int = 100
    """Experiences that may wait to be learned from. When it is full the oldest gives way, and is counted."""
    token_budget: int = 2000
    """Tokens of bullets in a prompt."""
    min_support: int = 1
    """Different goals whose reflection must have written a bullet before it is shown."""
    similarity_threshold: float = 0.8
    """Cosine from which two bullets are one."""
    embedder: str = "hashing"
    concurrency: int = 10
    """Calls in flight at once."""
    collector: Collector | None = None
    """Gets the trace of every goal, with the bullets that were shown and what it was found worth."""

    def __post_init__(self) -> None:
        for name in ("rounds", "queue_size", "token_budget", "min_support", "concurrency"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, and must be at least 1")
        if self.ptc_base_url and not self.ptc_base_url.startswith(("http://", "https://")):
            raise InputError(f"ptc_base_url is {self.ptc_base_url!r}, and must begin with http:// or https://")
        if self.task_type not in set(TaskType):
            raise InputError(f"task_type is {self.task_type!r}, and must be one of {', '.join(TaskType)}")

    @property
    def models(self) -> tuple[str, str]:
        """Who does the work and who draws the lessons, with the defaults filled in."""
        default = "openai:gpt-5-nano" if self.model == "openai:gpt-5-mini" else self.model
        return self.model, self.reflector_model or default


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What became of one goal."""

    task: Task
    trace: Trace
    score: Score
    bullets: tuple[Bullet, ...] = ()
    """The strategies that stood in the prompt."""

    @property
    def output(self) -> str:
        """The agent's last word; nothing when it broke off before it said any."""
        return self.trace.reply

    @property
    def files(self) -> Mapping[str, str]:
        """The files that it wrote, by relative path."""
        return last_files(self.trace)

    @property
    def success(self) -> bool | None:
        """Whether checks or a verifier found everything right. `None` when nobody could tell: code that ran to its end has not
        been shown to do what was asked."""
        value = self.score.total
        return None if value is None else value >= 1

    @property
    def error(self) -> str | None:
        """Why it broke off, as `ErrorName: message`."""
        return self.trace.error

    @property
    def cost(self) -> float | None:
        """US dollars; `None` as soon as one call's price is not known."""
        return self.trace.cost

    @property
    def tokens(self) -> int | None:
        """In and out; `None` as soon as one call's are not known."""
        return total((self.trace.input_tokens, self.trace.output_tokens))

    @property
    def metadata(self) -> Mapping[str, float | int | None]:
        """The same under the names of a results file."""
        return {
            "cost_usd": self.cost,
            "tokens_used": self.tokens,
            "performance_score": self.score.total,
            "skills_used": len(self.bullets),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorStats:
    """What an executor has done so far."""

    goals: int = 0
    succeeded: int = 0
    failed: int = 0
    """Judged, and not right."""
    unjudged: int = 0
    """Nobody could tell. They teach when somebody gives feedback."""
    broke_off: int = 0
    """Of the unjudged, those that a model or sandbox failed."""
    generator: Spent = field(default_factory=Spent)
    learning: LearningStats = field(default_factory=LearningStats)
