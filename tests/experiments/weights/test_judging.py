"""What completions are worth while weights are trained."""

import json
from contextlib import closing
from datetime import UTC, datetime

import pytest

from journeyman.core.errors import SandboxError, TaskError
from journeyman.core.score import Reward, Score
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Trace
from journeyman.experiments.weights.__main__ import TaskJudge
from journeyman.rewards.engine import RewardEngine
from journeyman.rewards.static import FormatComplianceReward, TaskCompletionReward
from journeyman.tasks import desk
from journeyman.tasks.answers import Exact
from journeyman.tasks.base import Verifier
from journeyman.tasks.desk.world import Desk

pytestmark = pytest.mark.training

TASK = desk.load("oslo", sizes={Split.TRAIN: 1}).tasks[0]


def _said(reply: str, error: str | None = None) -> Trace:
    call = ModelCall(model="m", prompt="p", reply=reply)
    return Trace(id="t", task_id="x", candidate_id="base", started_at=datetime.now(UTC), steps=(call,), error=error)


def _judged(verifier: Verifier, attempts: list[tuple[Task, Trace]]) -> list[Score]:
    with closing(TaskJudge(verifier)) as judge:
        return judge.judge(attempts)


def test_what_is_right_is_worth_one_and_what_is_nearly_right_less_but_more_than_nothing() -> None:
    right = json.loads(TASK.answer)
    nearly = {**right, "arguments": {**right["arguments"], "sku": "nothing"}}
    replies = [json.dumps(right), json.dumps(nearly), "hello"]
    scores = _judged(Desk(), [(TASK, _said(reply)) for reply in replies])
    totals = [score.total for score in scores]
    assert totals[0] == 1.0
    assert totals[1] is not None
    assert 0 < totals[1] < 0.5
    assert totals[2] == 0.0


def test_a_verifier_that_cannot_grade_judges_alone() -> None:
    task = Task(id="q", question="2 + 2?", answer="4")
    assert _judged(Exact(), [(task, _said("Answer: 4"))])[0].total == 1.0


def test_an_attempt_that_broke_off_is_unknown_and_not_wrong() -> None:
    assert _judged(Desk(), [(TASK, _said("", error="ModelError: gone"))])[0].total is None


def test_a_verifier_that_fails_makes_its_attempt_unknown_and_leaves_the_others_alone() -> None:
    class Broken:
        async def verify(self, task: Task, trace: Trace) -> Reward:
            if trace.reply == "boom":
                raise TaskError("the verifier broke")
            return Reward(name="fine", value=1.0)

    scores = _judged(Broken(), [(TASK, _said("boom")), (TASK, _said("good"))])
    assert [score.total for score in scores] == [None, 1.0]
    assert "the verifier broke" in scores[0].evidence


def test_rewards_that_were_named_count_beside_the_verifier() -> None:
    with closing(TaskJudge(Desk(), RewardEngine([FormatComplianceReward(), TaskCompletionReward()]))) as judge:
        names = [reward.name for reward in judge.judge([(TASK, _said(TASK.answer))])[0].rewards]
    assert names[:2] == ["desk", "desk fields"]
    assert names[2:] == ["format_compliance"], "what had nothing to measure says nothing"


def test_one_judge_judges_again_and_again() -> None:
    with closing(TaskJudge(Desk())) as judge:
        assert [judge.judge([(TASK, _said(TASK.answer))])[0].total for _ in range(3)] == [1.0] * 3


def test_a_checker_that_is_down_ends_the_training_and_is_no_unknown_verdict() -> None:
    class Down:
        async def start(self) -> None:
            raise SandboxError("no code service answers at http://127.0.0.1:1")

        async def verify(self, task: Task, trace: Trace) -> Reward:
            return Reward(name="checks", value=None)

    with pytest.raises(SandboxError, match="no code service answers"):
        _judged(Down(), [(TASK, _said("good"))])
