"""Where the loop goes round: one training run, and one examination, with their models, data sets and stores."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from journeyman import app, embed
from journeyman.agents.answer import Answer, MakeAgent
from journeyman.candidate import BASE, Candidate, Kind
from journeyman.embed.base import Embedder
from journeyman.embed.cache import Cached
from journeyman.errors import ModelBusy, ModelError, ModelRefused
from journeyman.examination import EvaluateConfig, Report, evaluate_agents
from journeyman.gate import Gate
from journeyman.improve import Turn, turn
from journeyman.learn.playbook import files
from journeyman.learn.playbook.choose import chooser
from journeyman.learn.playbook.curate import Curator
from journeyman.learn.playbook.progress import Progress
from journeyman.learn.playbook.runs import Run
from journeyman.learn.playbook.trainer import Learned, Tools, Watcher, learn
from journeyman.models.base import Model
from journeyman.playbook import Playbook
from journeyman.release import Release, Stage
from journeyman.rollout import Agent, Attempt, refusal
from journeyman.stores import AttemptRecord, EvaluationRecord, RunRecord, RunState, Store
from journeyman.task import Split, Task
from journeyman.tasks.base import Dataset
from journeyman.training import TrainingConfig, TrainingResult


class Bench:
    """Wires a run together."""

    def __init__(
        self,
        config: TrainingConfig,
        run: Run,
        dataset: Dataset,
        models: tuple[Model, ...],
        store: Store,
        watcher: Watcher,
    ) -> None:
        self.config = config
        self.run = run
        self.dataset = dataset
        self.generator, self.reflector = models
        self.agent: MakeAgent = Answer
        """Who attempts the tasks. Another may take its place before the run."""
        self.store = store
        self.watcher = _Keeping(store, run.folder.name, watcher)
        self.name = str(run.config["name"])
        """Made of the settings: the same in every run that would learn the same."""
        self.stamp = app.stamp(*models)
        self.embedder = Cached(embed.load(config.embedder))
        self.went: Turn | None = None
        """What the gate made of it, once it was asked."""

    @contextmanager
    def marked(self) -> Iterator[None]:
        """The run is in the store as running, and as stopped when what is done here breaks off."""
        id = self.run.folder.name
        self.store.add_run(RunRecord(id=id, kind="train playbook", config=self.config.json(), started_at=app.now()))
        self.store.mark_run(id, RunState.RUNNING, app.now())
        try:
            yield
        except BaseException:
            self.store.mark_run(id, RunState.STOPPED, app.now())
            raise

    async def go_round(self) -> tuple[Learned, Turn | None]:
        """Learn to the end, then let the gate look at what was learned; without a gate if none was asked for."""
        if not self.config.evaluate:
            return await self._learn(), None
        learned: list[Learned] = []

        async def learning(_: Candidate | None) -> Candidate | None:
            found = await self._learn()
            learned.append(found if self._affordable(found) else replace(found, finished=False))
            return candidate_of(learned[0].playbook) if learned[0].finished else None

        async def evaluating(_: Candidate, __: Candidate | None) -> Report:
            return await self._evaluate(learned[0].playbook)

        self.went = await turn(candidate_of(self.run.initial), learn=learning, evaluate=evaluating, clock=app.now)
        return learned[0], self.went

    def record(self, result: TrainingResult) -> None:
        """Keep how it ended, and the release of what passed or was forced. Once more changes nothing."""
        passed = self.went is not None and self.went.release is not None
        candidate = self.went.candidate if self.went else candidate_of(result.playbook)
        if candidate is not None and (passed or result.forced):
            self.store.add_candidate(candidate)
            if self.store.release(candidate.id) is None:
                reason = f"{result.reason} ({result.run_id})"
                self.store.add_release(Release.begin(candidate.id, result.stage, reason, app.now(), forced=result.forced))
        state = RunState.FINISHED if result.finished else RunState.STOPPED
        self.store.mark_run(self.run.folder.name, state, app.now(), result.json())

    def _affordable(self, learned: Learned) -> bool:
        """Whether the evaluation keeps within the limit too: its calls are like those of the training."""
        calls = 2 * self.config.trials * len(self.dataset.split(Split.HELD_OUT))
        spent = learned.progress.generator
        return (
            self.config.max_cost is None
            or learned.progress.cost + calls * spent.cost / max(1, spent.calls) <= self.config.max_cost
        )

    async def _learn(self) -> Learned:
        tools = Tools(
            generator=self.generator,
            reflector=self.reflector,
            verifier=self.dataset.verifier,
            curator=Curator(self.embedder, self.config.similarity_threshold),
            embedder=self.embedder,
            clock=app.now,
            stamp=lambda: self.stamp,
            name=self.name,
            agent=self.agent,
        )
        return await learn(self.dataset.split(Split.TRAIN), self.run, tools, self.config.learning, self.watcher)

    async def _evaluate(self, playbook: Playbook) -> Report:
        examination = Examination(
            model=self.generator,
            dataset=self.dataset,
            store=self.store,
            embedder=self.embedder,
            gate=self.config.gate,
            trials=self.config.trials,
            token_budget=self.config.token_budget,
            agent=self.agent,
        )
        report = await examination.sit(playbook, self.run.initial, id=self.run.folder.name, done=self.watcher.evaluated)
        keep(self.store, self.run.folder.name, (*report.baseline_attempts, *report.candidate_attempts))
        return report


class _Keeping:
    """Keeps the attempts of every batch that is merged, and lets another watcher see everything."""

    def __init__(self, store: Store, run_id: str, watcher: Watcher) -> None:
        self._store = store
        self._run_id = run_id
        self._watcher = watcher
        self._attempts: list[Attempt] = []
        self.evaluated = watcher.evaluated

    def attempted(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)
        self._watcher.attempted(attempt)

    def merged(self, playbook: Playbook, progress: Progress, tasks: int) -> None:
        keep(self._store, self._run_id, self._attempts)
        self._attempts = []
        self._watcher.merged(playbook, progress, tasks)


def keep(store: Store, run_id: str, attempts: Iterable[Attempt]) -> None:
    """Put attempts of a known run into the store; those that are there already stay as they are."""
    store.add_attempts(
        AttemptRecord(run_id=run_id, split=attempt.task.split, trace=attempt.trace, score=attempt.score) for attempt in attempts
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Two playbooks on the held-out tasks of a data set. Every look at them is counted in the store."""

    model: Model
    dataset: Dataset
    store: Store
    embedder: Embedder
    gate: Gate
    trials: int = 1
    token_budget: int = 2000
    rival: Model | None = None
    """The baseline's model, where it is another one."""
    agent: MakeAgent = Answer
    """Who attempts the tasks, on both sides."""
    weights: Candidate | None = None
    """What was learned in the weights of `model` and not in the rival's, where that is examined and not the playbook."""

    async def sit(
        self, playbook: Playbook, against: Playbook, *, id: str, done: Callable[[int, int], None] = lambda _, __: None
    ) -> Report:
        """Let both attempt the tasks, ask the gate, and keep what was found.

        Args:
            id: Of the run or command; part of the evaluation's.
            done: Is told after each attempt how many are done, and of how many.

        Raises:
            ModelRefused: A model said no for good to every attempt of a side.
        """
        held_out = self.dataset.split(Split.HELD_OUT)
        examined = held_out_id(self.dataset)
        new, old = self.weights or candidate_of(playbook), candidate_of(against)
        who = (new.id if new else BASE) + (f"@{self.model.name}" if self.rival and not self.weights else "")
        look = self._look(held_out, who, old.id if old else BASE)
        finished: list[Attempt] = []

        def count(attempt: Attempt) -> None:
            finished.append(attempt)
            done(len(finished), 2 * self.trials * len(held_out))

        config = EvaluateConfig(trials=self.trials, looks=look - 1, prefix=f"{id}/evaluation", clock=app.now, done=count)
        report = await evaluate_agents(
            self._agent(self.model, playbook, new),
            self._agent(self.rival or self.model, against, old),
            held_out,
            self.dataset.verifier,
            gate=self.gate,
            config=config,
        )
        for attempts in (report.baseline_attempts, report.candidate_attempts):
            if reason := refusal(attempts):
                raise ModelRefused(f"{reason}. Nothing could be examined: every attempt met with this")
            if attempts and all((attempt.trace.error or "").startswith(f"{ModelBusy.__name__}: ") for attempt in attempts):
                raise ModelError(f"no attempt at the held-out tasks was answered: {attempts[0].trace.error}")
        if new is not None:
            self.store.add_candidate(new)
        self.store.add_evaluation(
            EvaluationRecord(
                id=f"{id}/{who}/{old.id if old else BASE}/{examined}/{look}",
                candidate_id=who,
                baseline_id=old.id if old else BASE,
                held_out_id=examined,
                passed=report.passed,
                reason=report.reason,
                report={**report.json(), "pairs": report.evaluation.pairs_json()},
                at=app.now(),
            )
        )
        return report

    def _look(self, held_out: Sequence[Task], who: str, against: str) -> int:
        """Count a look, before it is made: whoever breaks off after a glance has looked. Which one it is, from 1.

        To do the very same on deterministic models gives the same result again, and is no new look; anything else is another
        chance to be lucky: another baseline, more of the tasks, another model, more trials, another budget.
        """
        at = app.now()
        models = (self.model, self.rival) if self.rival else (self.model,)
        # Learned weights are known by their content, wherever the folder lies that the model's name tells.
        known = [self.rival] if self.weights else models
        names = (self.embedder.name, *(model.name for model in known if model))
        same = [against, held_out_id(self.dataset), *names, str(self.trials), str(self.token_budget)]
        again = "/".join(same) if all(model.deterministic for model in models) else at.isoformat()
        return max((self.store.record_look(mark, who, at, again) for mark in landmarks(held_out)), default=1)

    def _agent(self, model: Model, playbook: Playbook, candidate: Candidate | None) -> Agent:
        if candidate is None:
            return self.agent(model=model)
        if not playbook.active:
            return self.agent(model=model, candidate_id=candidate.id)
        choose = chooser(playbook, self.embedder, budget=self.token_budget)
        return self.agent(model=model, choose=choose, candidate_id=candidate.id)


def candidate_of(playbook: Playbook) -> Candidate | None:
    """A playbook as something that can be evaluated and released; `None` when it has no bullets, for that is no candidate.

    How far it was released, when and by which run are left out: what the gate let pass is the candidate that the gate saw.
    """
    if not playbook.active:
        return None
    bullets = tuple(replace(bullet, stage=Stage.SHADOW, updated_at="") for bullet in playbook.bullets)
    content = replace(playbook, bullets=bullets, batches=frozenset(), created_at="", training_config={})
    return Candidate(kind=Kind.PLAYBOOK, body=files.dumps(content))


def landmarks(held_out: Sequence[Task]) -> list[str]:
    """A few of the tasks, by which an overlapping set is recognised: looks are counted at each of them.

    Those with the smallest hashes: a bottom-k sketch (Broder 1997, "On the resemblance and containment of documents"). A set
    that has most tasks in common shares most of them, so leaving out some tasks is no way to look anew.
    """
    return sorted(hashlib.sha256(task.question.encode()).hexdigest()[:16] for task in held_out)[:LANDMARKS]


LANDMARKS = 8


def held_out_id(dataset: Dataset) -> str:
    """Made of the held-out tasks: looks at the same ones are counted together."""
    rows = sorted(f"{task.id} {task.question}" for task in dataset.split(Split.HELD_OUT))
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]
