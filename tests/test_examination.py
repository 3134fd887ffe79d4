"""Baseline and candidate on the same tasks, and what is reported."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman.agents.answer import Answer
from journeyman.agents.attempt import Attempt
from journeyman.core.errors import InputError
from journeyman.core.evaluation import Result
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Step
from journeyman.experiments.compare import (
    EvaluateConfig,
    EvaluationReport,
    compare,
    evaluate,
    evaluate_agents,
    read_results,
    result_lines,
    results,
)
from journeyman.models.scripted import Always
from journeyman.tasks.answers import Exact

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TASKS = [Task(id=f"t{n}", question=f"What is {n}+0?", answer=str(n), split=Split.HELD_OUT) for n in range(40)]
PROMISED = ["tasks", "unknown", "baseline", "candidate", "gain", "low", "high", "passed", "reason"]


@dataclass
class Knows:
    """Knows the answers below `right`, and breaks off from `fails` on."""

    right: int = 0
    fails: int = 1000
    candidate_id: str = "base"
    cost: float | None = 0.25
    tried: list[str] = field(default_factory=list)

    async def run(self, task: Task) -> AsyncIterator[Step]:
        self.tried.append(task.id)
        number = int(task.answer)
        if number >= self.fails:
            raise ConnectionError("gone")
        reply = f"Answer: {number if number < self.right else -1}"
        yield ModelCall(model="m", prompt="p", reply=reply, input_tokens=10, output_tokens=2, cost=self.cost, seconds=0.5)


def test_the_better_agent_passes_and_the_report_reads_both_ways() -> None:
    report = evaluate(Knows(right=30, candidate_id="c1"), Knows(right=10), TASKS, Exact())
    assert report.passed
    assert report["passed"] is True
    assert (report.tasks, report.unknown, report.baseline, report.candidate, report.gain) == (40, 0, 0.25, 0.75, 0.5)
    assert report["gain"] == report.gain
    assert report.low is not None
    assert report.high is not None
    assert report.low < 0.5 < report.high
    assert "gain +0.500 on 40 tasks" in report.reason


def test_the_json_has_the_promised_fields_first() -> None:
    report = evaluate(Knows(right=30), Knows(right=10), TASKS, Exact())
    assert list(report.json())[: len(PROMISED)] == PROMISED
    assert dict(report) == report.json()
    assert json.loads(json.dumps(report.json())) == report.json()


def test_an_agent_against_itself_does_not_pass() -> None:
    model = Always("Answer: 3")
    report = evaluate(Answer(model=model), Answer(model=model), TASKS, Exact())
    assert not report.passed
    assert report.gain == 0.0


def test_what_breaks_off_is_unknown_and_stops_nothing() -> None:
    report = evaluate(Knows(right=40, fails=39), Knows(right=0), TASKS, Exact())
    assert (report.tasks, report.unknown) == (39, 1)
    assert report.passed
    broken = evaluate(Knows(right=40, fails=30), Knows(right=0), TASKS, Exact())
    assert not broken.passed
    assert "10 of 40 tasks could not be compared" in broken.reason


def test_nothing_known_is_null_and_not_zero() -> None:
    report = evaluate(Knows(fails=0), Knows(fails=0), TASKS, Exact())
    assert [report.json()[name] for name in PROMISED[:7]] == [0, 40, None, None, None, None, None]
    assert evaluate(Knows(), Knows(), [], Exact()).reason == "0 held-out tasks were compared, and 30 are needed"


def test_tokens_cost_and_seconds_are_summed_on_both_sides() -> None:
    report = evaluate(Knows(), Knows(cost=None), TASKS, Exact(), config=EvaluateConfig(attempts_per_task=2))
    spent = report["spent"]
    assert spent["candidate"] == {"attempts": 80, "input_tokens": 800, "output_tokens": 160, "cost": 20.0, "seconds": 40.0}
    assert spent["baseline"]["cost"] is None
    assert spent["baseline"]["calls_without_price"] == 80


def test_sums_tell_the_known_part_and_how_many_calls_they_leave_out() -> None:
    class Half(Knows):
        """Whose server counts every other answer."""

        async def run(self, task: Task) -> AsyncIterator[Step]:
            async for step in super().run(task):
                assert isinstance(step, ModelCall)
                yield replace(step, input_tokens=None, cost=None) if int(task.answer) % 2 else step

    report = evaluate(Half(), Knows(), TASKS, Exact())
    spent = report["spent"]["candidate"]
    assert (spent["input_tokens"], spent["calls_without_usage"], spent["calls_without_price"]) == (200, 20, 20)
    assert EvaluationReport.restored(report.record()).json()["spent"]["candidate"] == spent


def test_several_attempts_at_a_task_are_one_task() -> None:
    agent = Knows(right=30)
    report = evaluate(agent, Knows(right=10), TASKS, Exact(), config=EvaluateConfig(attempts_per_task=3))
    assert report.tasks == 40
    assert len(agent.tried) == 120
    assert len({attempt.trace.id for attempt in report.candidate_attempts + report.baseline_attempts}) == 240
    with pytest.raises(InputError, match="attempts_per_task is 0"):
        evaluate(agent, agent, TASKS, Exact(), config=EvaluateConfig(attempts_per_task=0))


def test_both_sides_are_watched_and_the_clock_is_handed_in() -> None:
    seen: list[Attempt] = []
    config = EvaluateConfig(done=seen.append, clock=lambda: NOW, prefix="run-1")
    evaluate(Knows(), Knows(), TASKS, Exact(), config=config)
    assert len(seen) == 80
    assert {attempt.trace.started_at for attempt in seen} == {NOW}
    assert all(attempt.trace.id.startswith("run-1/") for attempt in seen)


def test_earlier_looks_make_the_gate_stricter() -> None:
    barely = Knows(right=8)
    gate = BetterOnHeldOut()
    assert evaluate(barely, Knows(), TASKS, Exact(), gate=gate).passed
    assert not evaluate(barely, Knows(), TASKS, Exact(), gate=gate, config=EvaluateConfig(looks=50)).passed


async def test_it_can_be_awaited_where_a_loop_runs() -> None:
    report = await asyncio.wait_for(evaluate_agents(Knows(right=30), Knows(), TASKS, Exact()), 10)
    assert report.passed


def test_its_results_can_be_written_and_compared_again(tmp_path: Path) -> None:
    report = evaluate(Knows(right=30, fails=39), Knows(right=10), TASKS, Exact(), config=EvaluateConfig(attempts_per_task=2))
    for name, attempts in (("a", report.baseline_attempts), ("b", report.candidate_attempts)):
        (tmp_path / name).write_text("\n".join(result_lines(results(attempts))), encoding="utf-8")
    again = compare(read_results(tmp_path / "a"), read_results(tmp_path / "b"))
    assert [again[name] for name in PROMISED] == [report[name] for name in PROMISED]


def test_results_are_read_with_their_trials(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(
        '{"task_id": 1, "score": true}\n{"task_id": "1", "trial": 1, "score": null, "note": "x"}\n', encoding="utf-8"
    )
    assert read_results(path) == [Result(task_id="1", score=1.0), Result(task_id="1", score=None, trial="1")]
    path.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="holds no results"):
        read_results(path)


def test_the_example_in_the_documentation_prints_what_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    exec(found[1], {})
    assert capsys.readouterr().out == found[2]
