"""The training program: `python -m journeyman.experiments.weights RUN`, its own process, also under `accelerate launch`.

Exit codes: 0 it went well, 2 the input cannot be used, 3 a guard stopped it and the last good checkpoint was kept, 130 it was
interrupted, after a checkpoint.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from journeyman import rewards
from journeyman.agents import answer, attempt
from journeyman.core.errors import JourneymanError
from journeyman.core.playbook import Playbook
from journeyman.core.reward import verified_first
from journeyman.core.score import Reward, Score
from journeyman.core.task import Task
from journeyman.core.trace import Trace
from journeyman.experiments.weights import settings
from journeyman.models import embedders
from journeyman.models.base import Dialect
from journeyman.models.embedders import Cached
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.retrieval import chooser
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.job import INTERRUPTED, Ended, TrainingJob, end_with_parent
from journeyman.optimizers.weights.rows import TextOrMessages
from journeyman.optimizers.weights.train.run import run
from journeyman.rewards.engine import RewardEngine
from journeyman.tasks.base import Grader, Verifier

# What judges completions while weights are trained: the verifier of the tasks, and rewards that can be checked.


class TaskJudge:
    """Implements `optimizers.weights.train.CompletionJudge`.

    A score holds the verifier's verdict, how near the attempt came where the verifier can tell, and the rewards of an engine
    where one is given, learned ones with a fifth of the weight at most. It is 1 only for what is right in all of them.
    """

    def __init__(self, verifier: Verifier, engine: RewardEngine | None = None) -> None:
        self._verifier = verifier
        self._engine = engine
        # One loop for all calls: a sandbox that is begun in one is not of use in another.
        self._runner = asyncio.Runner()

    def judge(self, attempts: Sequence[tuple[Task, Trace]]) -> list[Score]:
        """A score for each, in their order. What could not be verified is unknown.

        Raises:
            SandboxError: What verifies is down: nothing could be learned.
        """
        return self._runner.run(self._judge(attempts))

    def close(self) -> None:
        """End the loop. Not used afterwards."""
        self._runner.close()

    async def _judge(self, attempts: Sequence[tuple[Task, Trace]]) -> list[Score]:
        scores = list(await asyncio.gather(*(self._score(task, trace) for task, trace in attempts)))
        if any(score.total is None for score in scores):
            await attempt.see_checker(self._verifier)
        return scores

    async def _score(self, task: Task, trace: Trace) -> Score:
        try:
            score = await attempt.score(self._verifier, task, trace)
            if trace.error is None and isinstance(self._verifier, Grader):
                score = replace(score, rewards=(*score.rewards, await self._verifier.grade(task, trace)))
            if self._engine is not None:
                score = replace(score, rewards=(*score.rewards, *self._engine.verdicts(trace).measured))
        except JourneymanError as error:
            return Score(trace_id=trace.id, rewards=(Reward(name="judged", value=None, evidence=str(error)),))
        return replace(score, rewards=verified_first(score.rewards))


class Prompts:
    """How tasks are put to the model in training: as `agents.answer` puts them, with a playbook's bullets or bare."""

    def __init__(self, config: TrainingConfig) -> None:
        playbook = files.load(config.context) if config.context else Playbook()
        self._choose = chooser(playbook, Cached(embedders.load("hashing"))) if playbook.active else lambda _: ()

    def __call__(self, task: Task, dialect: Dialect) -> TextOrMessages:
        messages = answer.answer(task, self._choose(task), dialect)
        return tuple({"role": message.role, "content": message.content} for message in messages)


def main(arguments: Sequence[str]) -> int:
    end_with_parent()
    try:
        job = TrainingJob(Path(arguments[0]))
        config = job.config
        put = Prompts(config)
        if not config.dataset_name:
            report = run(job, put, None)
        else:
            engine = RewardEngine([rewards.load(name) for name in config.rewards]) if config.rewards else None
            with closing(TaskJudge(settings.verifier(config), engine)) as judge:
                report = run(job, put, judge)
    except JourneymanError as error:
        sys.stderr.write(f"journeyman: {error}\n")
        return 2
    if report is None:
        return INTERRUPTED
    return 3 if report.ended is Ended.GUARDED else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
