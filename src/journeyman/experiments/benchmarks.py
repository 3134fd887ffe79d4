"""Agents on public benchmarks: HumanEval and MBPP, whose programs are run, and BFCL, whose function calls are compared.

And whatever was served in a slot, on each of them.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from journeyman.agents.answer import nothing
from journeyman.agents.attempt import Agent, Attempt, see_checker
from journeyman.agents.replay import CallBudget
from journeyman.core.candidate import BASE, Candidate, Kind
from journeyman.core.errors import InputError
from journeyman.core.playbook import Playbook
from journeyman.core.rollout import Slot, SlotKind
from journeyman.core.score import Reward
from journeyman.core.task import Task
from journeyman.core.trace import Trace
from journeyman.experiments import wiring
from journeyman.experiments.agent_evaluation import (
    AgentReport,
    BenchEvaluation,
    Contestant,
    begun,
    connected,
    of_run,
    reopened,
)
from journeyman.experiments.agents import adapter_trained_on, candidate_of
from journeyman.experiments.agents_config import COMMAND, KIND, NOTHING, OWN, REFERENCE, AgentsConfig
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.io.processes import is_gone
from journeyman.models import embedders
from journeyman.models.base import Model
from journeyman.models.scripted import Always, Scripted
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.retrieval import chooser
from journeyman.stats import share_interval
from journeyman.stores import RunState, Store
from journeyman.stores.rollouts import RolloutStore
from journeyman.tasks import code, function_calls, questions
from journeyman.tasks.base import Verifier

BENCHMARKS: Mapping[str, tuple[str, ...]] = {
    "humaneval": ("HumanEval.jsonl.gz", "HumanEval.jsonl"),
    "mbpp": ("mbpp.jsonl", "mbpp.jsonl.gz"),
    wiring.FUNCTION_CALLS: tuple(f"BFCL_v*_simple_python.{ending}" for ending in ("json", "jsonl", "jsonl.gz")),
}
"""Each one's file as its authors call it; BFCL's is one of a folder's."""
FOLDER = "JOURNEYMAN_DATA"
"""The variable that names the folder, where a benchmark is named and no file."""
_ELSEWHERE = (
    *("category", "rounds", "agent_package", "timeout", "rewards", "tool_calls", "mcp", "mcp_variable", "environments"),
    *("jobs", "plugin"),
)
"""Options that are about repositories."""


def located(said: str) -> str:
    """The file, or the folder of files, of a benchmark that is named; what names none is a path already.

    Raises:
        InputError: Its file is not there.
    """
    if said not in BENCHMARKS or Path(said).exists():
        return said
    folder = os.environ.get(FOLDER, "")
    for pattern in BENCHMARKS[said] if folder else ():
        if found := next(iter(sorted(Path(folder).rglob(pattern))), None):
            return str(found.parent if said == wiring.FUNCTION_CALLS else found)
    name = BENCHMARKS[said][0].replace("*", "4")
    raise InputError(
        f"the file of {said} is not here: name it, as in --tasks {name}, or set {FOLDER} to a folder that holds it"
    )


def is_benchmark(path: str) -> bool:
    """Whether a file holds one of these benchmarks, by what stands in it."""
    return Path(path).exists() and questions.guessed(path) in BENCHMARKS


class QuestionBench:
    """A bench of tasks that a model is asked once. Implements `agent_evaluation.Bench`."""

    def __init__(
        self,
        config: AgentsConfig,
        store: Store,
        *,
        budget: CallBudget | None = None,
        said: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Args:
            budget: Shared with others; else of `config.max_cost`.

        Raises:
            InputError: The file cannot be used.
        """
        self.config, self.store, self.kind = config, store, questions.guessed(config.tasks)
        self.budget, self._say = budget or CallBudget(max_cost=config.max_cost), said
        if not config.agent:
            raise InputError("--agent says who is to do the tasks, such as the name of a model")
        self._dataset = wiring.load_dataset(
            TrainingConfig(dataset_name=self.kind, held_out_path=config.tasks, sandbox=config.sandbox)
        )
        self.tasks: tuple[Task, ...] = self._dataset.tasks[: config.most]

    @property
    def categories(self) -> Mapping[str, str]:
        calls = self.kind == wiring.FUNCTION_CALLS
        return {task.id: function_calls.category(task.id) if calls else self.kind for task in self.tasks}

    @property
    def verifier(self) -> Verifier:
        return self._dataset.verifier

    def contestant(self, name: str) -> Contestant:
        """An agent by its name, which may also be the ID of a candidate: what is served as it.

        Raises:
            InputError: There is none of that name, or it lacks something.
            ModelError: Its model cannot be used.
        """
        if name.startswith(COMMAND):
            raise InputError(f"a command works in repositories, and the tasks of {self.kind} have none; name a model")
        if name == NOTHING:
            return self._with(Always(), name=name)
        if name == REFERENCE:
            known = self._right()
            return self._with(Scripted(lambda request: known[request.task_id], name=REFERENCE), name=name)
        if (run := self.store.run(name)) is not None:
            return of_run(self, self.store, run, whole=False)
        if (candidate := self.store.candidate(name)) is not None:
            return self._candidate(candidate)
        if name == OWN:
            return self._learned(Playbook.load(self.config.playbook) if self.config.playbook else Playbook())
        return self._with(connected(self.config, name, self.budget), name=f"{BASE}@{name}", trained_on=adapter_trained_on(name))

    def _right(self) -> Mapping[str, str]:
        if self.kind == wiring.FUNCTION_CALLS:
            return {task.id: function_calls.right_reply(task) for task in self.tasks}
        found = code.right_replies(self.config.tasks)
        if missing := [task.id for task in self.tasks if task.id not in found]:
            raise InputError(f"{self.config.tasks} holds no solution of {missing[0]}, so {REFERENCE} has nothing to answer")
        return found

    def _candidate(self, candidate: Candidate) -> Contestant:
        if candidate.kind is Kind.PLAYBOOK:
            return self._learned(files.loads(candidate.body, candidate.id), candidate)
        if candidate.kind is not Kind.ADAPTER:
            raise InputError(f"{candidate.id} is a policy, which chooses among models: journeyman evaluate router")
        with RolloutStore(self.config.store) as kept:
            served = kept.live().models.get(candidate.id)
        if served is None or "://" not in served.url:
            where = f"served by the upstream {served.url} alone" if served and served.url else "served nowhere"
            raise InputError(f"the weights {candidate.id} are {where}; deploy them with a URL: journeyman deploy --release")
        model = connected(self.config, f"openai:{served.model}@{served.url}", self.budget)
        return self._with(model, name=candidate.id, candidate_id=candidate.id, learned=candidate)

    def _learned(self, playbook: Playbook, candidate: Candidate | None = None) -> Contestant:
        """The model with a playbook, as requests of the slot would get it."""
        config = self.config
        if not config.generator_model:
            raise InputError(f"{OWN} needs a model to ask: --model, or generator_model in [models] of journeyman.toml")
        model = connected(config, config.generator_model, self.budget)
        candidate = candidate or candidate_of(playbook)
        choose = chooser(self._of_these(playbook), embedders.load(config.embedder)) if candidate else nothing
        return self._with(
            model,
            name=candidate.id if candidate else f"{BASE}@{config.generator_model}",
            candidate_id=candidate.id if candidate else BASE,
            learned=candidate,
            trained_on=playbook.trained_on | adapter_trained_on(config.generator_model),
            choose=choose,
        )

    def _of_these(self, playbook: Playbook) -> Playbook:
        """With bullets of the tasks' domain; where it has none, all are shown: they were learned elsewhere, and must do no harm
        here."""
        domain = self.tasks[0].domain
        bullets = playbook.active
        if not bullets or any(bullet.domain == domain for bullet in bullets):
            return playbook
        self._say(f"no bullet is of domain {domain}, so those of every domain are shown")
        return replace(playbook, bullets=tuple(replace(bullet, domain=domain) for bullet in bullets))

    def _with(self, model: Model, *, name: str, candidate_id: str = "", choose: Any = nothing, **more: Any) -> Contestant:
        agent = wiring.agent_for(self._dataset)(model=model, choose=choose, candidate_id=candidate_id or name)
        return Contestant(
            name=name,
            make=lambda: agent,
            settings=(model.name,),
            deterministic=model.deterministic,
            close=model.close,
            **more,
        )

    async def start(self, agents: Iterable[Agent]) -> None:
        await see_checker(self.verifier)

    async def close(self) -> None:
        if (box := getattr(self.verifier, "sandbox", None)) is not None:
            await box.close()

    def job(self, _: dict[str, Any]) -> dict[str, Any]:
        raise InputError(f"workers attempt tasks of repositories; those of {self.kind} only wait for a model: --workers here")

    def item(self, task: Task, agent: str, prefix: str) -> dict[str, Any]:
        return self.job({})

    def recall(self, task: Task, trace: Trace, verdict: Reward) -> None:
        """A verdict is reached anew, which costs no call."""

    def development(self, attempts: Iterable[Attempt]) -> Mapping[str, Any]:
        return {}


def check_options(given: Iterable[str], tasks: str) -> None:
    """Refuse options that mean nothing where no repository is worked in.

    Raises:
        InputError: There is one.
    """
    if strange := next((name for name in given if name in _ELSEWHERE), None):
        raise InputError(
            f"--{strange.replace('_', '-')} is for tasks of repositories, and {tasks} is a benchmark; leave it out"
        )


# What was ever served in a slot, on each benchmark.


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRelease:
    """Something that is or was served in a slot."""

    id: str
    """Of its candidate; `base` is the request as it came."""
    since: datetime | None = None
    """First in production; `None` where it never was, as of a rollout that is open."""
    serving: bool = False
    """Whether it is in production now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseResult:
    """A release on one benchmark."""

    release: SlotRelease
    benchmark: str
    report: AgentReport

    def json(self) -> dict[str, Any]:
        """Success with its 95 % interval; the gain over base, likewise; what it cost in US dollars. Unknown is null."""
        told: dict[str, Any] = {
            "release": self.release.id,
            "since": self.release.since.isoformat() if self.release.since else None,
            "serving": self.release.serving,
            "benchmark": self.benchmark,
        }
        found = self.report.report
        scores = [pair.candidate for pair in found.evaluation.pairs]
        low, high = share_interval(len(scores), sum(scores), sum(score**2 for score in scores))
        is_base = self.release.id == BASE
        return {
            **told,
            "tasks": found.tasks,
            "unknown": found.unknown,
            "success": found.candidate,
            "low": low if scores else None,
            "high": high if scores else None,
            "gain": None if is_base else found.gain,
            "gain_low": None if is_base else found.low,
            "gain_high": None if is_base else found.high,
            "cost": found.evaluation.spent_candidate.cost,
        }


def served_in(kept: RolloutStore, slot: Slot) -> tuple[SlotRelease, ...]:
    """`base`, then what was in production of a slot by the time it came there, then what open rollouts bring.

    Raises:
        InputError: Nothing was, or the slot's candidates answer no tasks themselves.
    """
    if slot.kind is SlotKind.ROUTE:
        raise InputError(f"{slot} holds policies, which choose among models: journeyman evaluate router")
    now = kept.live()
    found: dict[str, SlotRelease] = {}
    for move in kept.slot_history(slot):
        if move.candidate_id != BASE:
            found.setdefault(move.candidate_id, SlotRelease(id=move.candidate_id, since=move.at))
    for arm in (arm for rollout in now.rollouts if rollout.slot == slot for arm in rollout.arms):
        found.setdefault(arm.candidate_id, SlotRelease(id=arm.candidate_id))
    if not found:
        raise InputError(f"nothing was ever served in {slot}; journeyman releases list shows the slots that something is in")
    serving = now.baseline(slot).candidate_id
    return tuple(replace(each, serving=each.id == serving) for each in (SlotRelease(id=BASE), *found.values()))


@dataclass(frozen=True, kw_only=True)
class ReleaseTable:
    """Measures releases on benchmarks, what was measured before being taken as it was."""

    config: AgentsConfig
    """With neither agent nor tasks."""
    store: Store
    releases: Sequence[SlotRelease]
    benchmarks: Mapping[str, str]
    """Files, by the names that are shown."""
    again: bool = False
    """Measure anew what was measured before."""
    said: Callable[[str], None] = lambda _: None
    done: Callable[[int, int], None] = lambda _, __: None
    """Told after each attempt how many are done, and of how many: of the release under way."""
    budget: CallBudget = field(default_factory=CallBudget)
    """Of all of them together."""

    def results(self) -> Iterator[ReleaseResult]:
        """Release by release on each benchmark, each as soon as it is measured.

        Raises:
            EvaluationStopped: The money was spent. What was attempted is kept, and the same call goes on.
        """
        for name, path in self.benchmarks.items():
            base = self._measured(self._told(path, self.config.generator_model, NOTHING))
            for release in self.releases:
                if release.id == BASE:
                    report = base[1]
                else:
                    _, report = self._measured(self._told(path, release.id, base[0]))
                yield ReleaseResult(release=release, benchmark=name, report=report)

    def planned(self) -> Iterator[tuple[SlotRelease, str, int]]:
        """Each release and benchmark, with how many attempts would be made: none where it was measured before."""
        for name, path in self.benchmarks.items():
            base = self._told(path, self.config.generator_model, NOTHING)
            tasks, run = len(QuestionBench(base, self.store).tasks), self._finished(base)
            for release in self.releases:
                told = base if release.id == BASE else self._told(path, release.id, run or "")
                known = self._finished(told) if run or release.id == BASE else None
                yield release, name, 0 if known else tasks * self.config.attempts_per_task

    def _told(self, path: str, agent: str, against: str) -> AgentsConfig:
        return replace(self.config, tasks=path, agent=agent, against=against or NOTHING)

    def _measured(self, config: AgentsConfig) -> tuple[str, AgentReport]:
        """The run that measured it, and what it found."""
        if (known := self._finished(config)) and not self.again:
            return known, AgentReport.restored(self._record(known))
        unfinished = None if self.again else self._run(config, RunState.STOPPED)
        if unfinished is not None:
            config, run = reopened(self.store, unfinished, config)
        else:
            run = begun(config, self.store)
        bench = QuestionBench(config, self.store, budget=self.budget, said=self.said)
        self.said(f"run {run.id}: {len(bench.tasks)} tasks of {bench.kind}, {config.agent}")
        with run.tracked():
            report = asyncio.run(BenchEvaluation(bench=bench, run=run, done=self.done).evaluate())
            run.end({"reason": report.reason, "passed": report.passed})
        return run.id, report

    def _finished(self, config: AgentsConfig) -> str | None:
        found = self._run(config, RunState.FINISHED)
        return found if found and self._record(found) else None

    def _run(self, config: AgentsConfig, state: RunState) -> str | None:
        """The newest run that was told the same, but for what it may cost, and is in a state. One whose process is gone has
        stopped."""
        wanted = _compared(begun(config, self.store).config)
        for run in self.store.runs(KIND, newest_first=True):
            gone = run.state is RunState.RUNNING and run.process is not None and is_gone(run.process)
            if (RunState.STOPPED if gone else run.state) is state and _compared(run.config) == wanted:
                return run.id
        return None

    def _record(self, run_id: str) -> Mapping[str, Any]:
        found = (each for each in self.store.evaluations(newest_first=True) if each.id.startswith(f"{run_id}/"))
        return next((each.report for each in found), {})


def _compared(told: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run in a form in which those of a new one are like those that were kept."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items() if name != "max_cost"}
