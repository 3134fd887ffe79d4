"""What judges completions while weights are trained: the verifier of the tasks, and rewards that can be checked."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from journeyman import rollout
from journeyman.errors import JourneymanError
from journeyman.rewards.engine import RewardEngine
from journeyman.score import Reward, Score
from journeyman.task import Task
from journeyman.tasks.base import Grader, Verifier
from journeyman.trace import Trace


class TaskJudge:
    """Implements `learn.weights.train.base.Judge`.

    A score holds the verifier's verdict, how near the attempt came where the verifier can tell, and the rewards of an engine
    where one is given. It is 1 only for what is right in all of them.
    """

    def __init__(self, verifier: Verifier, engine: RewardEngine | None = None) -> None:
        self._verifier = verifier
        self._engine = engine
        # One loop for all calls: a sandbox that is begun in one is not of use in another.
        self._runner = asyncio.Runner()

    def judge(self, attempts: Sequence[tuple[Task, Trace]]) -> list[Score]:
        """A score for each, in their order. What could not be verified is unknown."""
        return self._runner.run(self._judge(attempts))

    def close(self) -> None:
        """End the loop. Not used afterwards."""
        self._runner.close()

    async def _judge(self, attempts: Sequence[tuple[Task, Trace]]) -> list[Score]:
        return list(await asyncio.gather(*(self._score(task, trace) for task, trace in attempts)))

    async def _score(self, task: Task, trace: Trace) -> Score:
        try:
            score = await rollout.score(self._verifier, task, trace)
            if trace.error is None and isinstance(self._verifier, Grader):
                score = replace(score, rewards=(*score.rewards, await self._verifier.grade(task, trace)))
            if self._engine is not None:
                score = replace(score, rewards=(*score.rewards, *self._engine.score(trace).rewards))
        except JourneymanError as error:
            return Score(trace_id=trace.id, rewards=(Reward(name="judged", value=None, evidence=str(error)),))
        return score
