"""What an attempt was worth."""

from dataclasses import dataclass

from journeyman.core.errors import TaskError
from journeyman.core.reward import Reward as Reward
from journeyman.core.reward import Verdict, decide, mean
from journeyman.core.task import Split, Task
from journeyman.core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All rewards of one trace."""

    trace_id: str
    rewards: tuple[Reward, ...]

    @property
    def total(self) -> float | None:
        """The weighted mean of all, which is what a run makes larger. Unknown as soon as one is: half a verdict is none."""
        return mean(self.rewards)

    @property
    def verdict(self) -> Verdict:
        """Whether all was right, and by whose word."""
        return decide(self.rewards, threshold=1.0)

    @property
    def evidence(self) -> str:
        """What the verifiers found, a line each."""
        return "\n".join(reward.evidence for reward in self.rewards if reward.evidence)


@dataclass(frozen=True, slots=True)
class Experience:
    """What a learner is given, and all it is given."""

    task: Task
    trace: Trace
    score: Score

    def __post_init__(self) -> None:
        if self.task.split is Split.HELD_OUT:
            raise TaskError(f"{self.task.id} is held out: nobody may learn from it")

    @property
    def solved(self) -> bool | None:
        """Whether the attempt got everything right; `None` when that could not be told."""
        return self.score.verdict.good
