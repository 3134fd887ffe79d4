"""Learning on live executions: what is paid sums to what the execution was worth, and what pays is learned."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from journeyman.agents.orchestrator import Orchestrator
from journeyman.agents.workers import Note as Take
from journeyman.agents.workers import SubtaskJob, Worker
from journeyman.core.gate import BetterOnHeldOut, Guardrail
from journeyman.core.plan import ExecutionResult, Plan, Subtask
from journeyman.core.policy import Card, Choice
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.experiments.planner.collect import Instruction
from journeyman.experiments.planner.environment import LiveEnvironment, PracticeTask, compared, greedy, scored, worth
from journeyman.experiments.planner.training import Compared, Contender, LiveExamination
from journeyman.optimizers.planner.config import PPOConfig
from journeyman.optimizers.planner.policy import ModelSelector
from journeyman.optimizers.planner.ppo import Chosen, train
from journeyman.rewards.utility import Utility
from journeyman.stores import open_store

pytestmark = pytest.mark.training

WORKERS = ("small", "large")
PRICES = {"small": 1.0, "large": 4.0}
UTILITY = Utility(cost_weight=0.05, latency_weight=0.0, cost_reference=1.0)


class Pupil:
    """Does easy work right, and hard work only when it is large."""

    def __init__(self, name: str) -> None:
        self.card = Card(name=name, call_price=PRICES[name])

    def estimate(self, job: SubtaskJob) -> float | None:
        return self.card.call_price

    async def do(self, job: SubtaskJob, note: Take) -> Any:
        note(ModelCall(model=self.card.name, prompt="", reply="", input_tokens=9, output_tokens=1, cost=self.card.call_price))
        return "right" if job.subtask.type == "easy" or self.card.name == "large" else "wrong"


async def carry_out(plan: Plan, choices: Mapping[str, Choice]) -> ExecutionResult:
    crew: dict[str, Worker] = {name: Pupil(name) for name in WORKERS}
    result = await Orchestrator(crew=crew).run(plan, choices=choices)
    return replace(result, success=all(output == "right" for output in result.outputs.values()))


def course(at: int) -> PracticeTask:
    types = [("easy", "hard")[(at >> place) % 2] for place in range(3)]
    subtasks = tuple(Subtask(id=str(place), text=type, type=type) for place, type in enumerate(types))
    nodes = np.asarray([[type == "easy", type == "hard", 1.0] for type in types], np.float32)
    plan = Plan(instruction=f"number {at}", subtasks=subtasks)
    return PracticeTask(id=str(at), plan=plan, nodes=nodes, prior=np.zeros((3, 2), np.float32), carry_out=carry_out)


WORLD = LiveEnvironment(tasks=tuple(course(at) for at in range(8)), workers=WORKERS, reward=UTILITY)


def test_the_rewards_of_an_episode_sum_to_the_utility_of_its_execution() -> None:
    heard: list[ExecutionResult] = []
    world = LiveEnvironment(tasks=WORLD.tasks, workers=WORKERS, reward=UTILITY, heard=heard.append)
    episodes = world.episodes(range(8), lambda state: Chosen(action=(state.episode + state.at) % 2, log_prob=-0.7))
    for episode, result in zip(episodes, heard, strict=True):
        assert sum(step.reward for step in episode) == pytest.approx(worth(UTILITY, result))
        assert len(episode) == 3


def test_what_was_chosen_is_what_was_carried_out_and_is_on_record_with_its_propensity() -> None:
    _, results = WORLD.utilities(lambda state: Chosen(action=state.at % 2, log_prob=float(np.log(0.25))))
    for result in results:
        assert [result.results[str(at)].worker for at in range(3)] == ["small", "large", "small"]
        choice = result.results["1"].choice
        assert choice is not None
        assert choice.propensity == pytest.approx(0.25)


def test_an_execution_that_nobody_judged_is_no_success() -> None:
    async def unjudged(plan: Plan, choices: Mapping[str, Choice]) -> ExecutionResult:
        crew: dict[str, Worker] = {name: Pupil(name) for name in WORKERS}
        return await Orchestrator(crew=crew).run(plan, choices=choices)

    plan = WORLD.tasks[0].plan.with_workers(["small"] * 3)
    assert worth(UTILITY, asyncio.run(unjudged(plan, {}))) == pytest.approx(-0.15)


def test_reinforcement_learns_to_ask_the_large_one_for_what_is_hard_alone() -> None:
    selector = ModelSelector(np.eye(2, dtype=np.float32), 3, seed=0)
    train(WORLD, selector, PPOConfig(episodes=1920, learning_rate=1e-2, gamma=1.0, kl_coef=0.0, target_kl=0.1))
    learned, results = WORLD.utilities(greedy(lambda state: selector.probabilities([state])[0]))
    for course, result in zip(WORLD.tasks, results, strict=True):
        for step in course.plan.subtasks:
            assert result.results[step.id].worker == ("small" if step.type == "easy" else "large")
    always = [WORLD.utilities(lambda state, at=at: Chosen(action=at, log_prob=0.0))[0] for at in (0, 1)]  # type: ignore[misc]
    tasks = [Task(id=course.id, question="") for course in WORLD.tasks]
    assert all((compared(tasks, each, learned, UTILITY).gain or 0.0) > 0 for each in always)


class Sleeper(Pupil):
    """Takes longer when it is large."""

    async def do(self, job: SubtaskJob, note: Take) -> Any:
        await asyncio.sleep(0.2 if self.card.name == "large" else 0.0)
        return await super().do(job, note)


def test_each_choice_pays_for_its_own_wait() -> None:
    async def slowly(plan: Plan, choices: Mapping[str, Choice]) -> ExecutionResult:
        result = await Orchestrator(crew={name: Sleeper(name) for name in WORKERS}).run(plan, choices=choices)
        return replace(result, success=True)

    reward = Utility(cost_weight=0.0, latency_weight=1.0, seconds_reference=0.2)
    world = LiveEnvironment(tasks=(replace(course(0), carry_out=slowly),), workers=WORKERS, reward=reward)
    (episode,) = world.episodes([0], lambda state: Chosen(action=int(state.at == 0), log_prob=0.0))
    first, *others = (step.reward for step in episode)
    assert first < -0.5, "the first was slow, and the others were not"
    assert min(others) > 0.2


def examined(*guardrails: Guardrail, families: int = 0) -> Compared:
    """Whoever asks the large one against whoever asks the small one, on 40 instructions of which it does all alone."""

    def judged(result: ExecutionResult) -> ExecutionResult:
        return replace(result, success=all(output == "right" for output in result.outputs.values()))

    def asks(name: str) -> Contender:
        return Contender(
            id=name,
            make=lambda text: Plan(
                instruction=text, subtasks=tuple(Subtask(id=id, text=id, type="hard", worker=name) for id in "ab")
            ),
        )

    crew: dict[str, Worker] = {name: Pupil(name) for name in WORKERS}
    examination = LiveExamination(
        asked=[
            Instruction(id=str(at), text=f"number {at}", judge=judged, cluster=str(at % families) if families else "")
            for at in range(40)
        ],
        orchestrator=Orchestrator(crew=crew),
        utility=UTILITY,
        gate=scored(BetterOnHeldOut(guardrails=guardrails), UTILITY),
    )
    with open_store("memory:") as store:
        return examination.evaluate(asks("large"), asks("small"), HeldOutEvaluator(store=store), id="it")


def test_a_planner_that_costs_more_than_is_allowed_does_not_pass_however_right_it_is() -> None:
    assert examined().passed
    free = examined(Guardrail("tokens", 0.1), Guardrail("cost", 3.1))
    assert free.passed, free.reason
    assert [each["metric"] for each in free.json()["guardrails"]] == ["tokens", "cost"]
    dear = examined(Guardrail("tokens", 0.1), Guardrail("cost", 0.1))
    assert not dear.passed
    assert "but cost +300.0 %" in dear.reason
    tokens, cost = dear.json()["guardrails"]
    assert (tokens["baseline"], tokens["passed"], cost["baseline"], cost["candidate"]) == (20.0, True, 2.0, 8.0)


def test_plans_of_few_customers_tell_nothing_of_the_next() -> None:
    assert examined(families=20).passed
    few = examined(families=4)
    assert not few.passed
    assert "40 held-out tasks of 4 clusters were compared, and 10 clusters are needed" in few.reason
