"""Learning a playbook by an optimizer that is not ours: what it is given, and how what it found is kept.

An optimizer of one's own sees training tasks alone, attempts them with texts that it tries, and ends with the texts that it
thinks best. It is merged as one batch of the run, so that journal, examination and gate are those of every playbook.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, Protocol

from journeyman.agents.attempt import Attempt, attempt_all, refusal
from journeyman.core import extension
from journeyman.core.errors import InputError, JourneymanError, ModelRefused, TaskError
from journeyman.core.playbook import Add, Batch, Bullet, Insight, Playbook, Provenance, Retire, bullet_id
from journeyman.core.score import Experience
from journeyman.core.task import Split, Task, fingerprints
from journeyman.optimizers.playbook.config import LearnConfig
from journeyman.optimizers.playbook.reflector import Reflection, reflect
from journeyman.optimizers.playbook.retrieval import Chooser
from journeyman.optimizers.playbook.run import PlaybookRun, Progress, Spent, Tally
from journeyman.optimizers.playbook.trainer import Learned, TrainerTools, Unwatched, Watcher, learn

Texts = Mapping[str, Sequence[str]]
"""What stands in prompts, by the domain of the task: each text is a bullet of the playbook."""


class BudgetSpent(JourneymanError):
    """The run's limit on cost is reached: no model is asked any more."""


@dataclass(kw_only=True)
class Workbench:
    """What an optimizer works with. Every call of a model that it makes here is counted among the run's."""

    tasks: Sequence[Task]
    """To learn from. No held-out task is among them."""
    playbook: Playbook
    """What it starts from; often empty."""
    tools: TrainerTools
    config: LearnConfig
    """How the run was asked to learn; of it, `epochs`, `batch_size`, `token_budget`, `max_cost` and `seed` hold for any
    optimizer."""
    watcher: Watcher
    before: Progress = field(default_factory=Progress)
    """What the run had spent before, where it was stopped and is gone on with."""
    name: str = "your own"
    """The optimizer's, as it was asked for."""
    attempts: list[Attempt] = field(default_factory=list)
    """All that were made."""
    reflections: list[Reflection] = field(default_factory=list)

    @property
    def texts(self) -> Texts:
        """What the playbook says now, for each domain that the tasks have."""
        domains = dict.fromkeys(task.domain for task in self.tasks)
        return {name: [each.content for each in self.playbook.active if each.domain == name] for name in domains}

    @property
    def exhausted(self) -> bool:
        """Whether the limit on cost is reached, or cannot be kept as it is not known what a call cost. Then nothing more can
        be asked, and an optimizer gives back the best that it has."""
        spent = self._spent()
        cost = self.before.cost + spent.cost
        return self.config.max_cost is not None and (cost >= self.config.max_cost or spent.unknown_costs > 0)

    def _spent(self) -> Progress:
        return Progress(
            generator=Spent.of(call for attempt in self.attempts for call in attempt.trace.calls),
            reflector=Spent.of(call for reflection in self.reflections for call in reflection.calls),
        )

    def _within_budget(self) -> None:
        if self.exhausted:
            raise BudgetSpent(f"the limit of ${self.config.max_cost:g} is reached")

    async def attempt(self, texts: Texts, tasks: Sequence[Task]) -> list[Attempt]:
        """Attempt tasks with these texts in the prompts, in the tasks' order. What breaks off has a score of `None`.

        Raises:
            ModelRefused: The model said no to all of them, for one reason.
            BudgetSpent: The limit on cost was reached before; the run is then stopped, unless the optimizer ends by itself.
        """
        self._within_budget()
        playbook = self.playbook.apply(self.batch(texts))
        choose = Chooser(self.tools.embedder, budget=self.config.token_budget).of(playbook)
        number = f"{self.tools.name}@{len(self.attempts)}"
        agent = self.tools.agent(model=self.tools.generator, choose=choose, candidate_id=number)
        made = await attempt_all(
            agent, tasks, self.tools.verifier, prefix=number, clock=self.tools.clock, done=self.watcher.attempted
        )
        if made and (reason := refusal(made)) is not None:
            raise ModelRefused(reason)
        self.attempts += made
        return made

    async def reflect(self, attempt: Attempt) -> Sequence[Insight]:
        """What Journeyman's own Reflector learns from an attempt; nothing where it could not be judged.

        Raises:
            BudgetSpent: As by `attempt`.
        """
        self._within_budget()
        experience = Experience(attempt.task, attempt.trace, attempt.score)
        if experience.solved is None:
            return ()
        found = await reflect(self.tools.reflector, [experience], ())
        self.reflections.append(found)
        return [each for each in found.insights if each.content]

    def batch(self, texts: Texts) -> Batch:
        """The change that makes the playbook say these texts; bullets of other domains, and locked ones, stay.

        Raises:
            InputError: They are no texts by domain, or of a domain that no task has.
        """
        self._check(texts)
        wanted = {bullet_id(domain, text): (domain, text) for domain, some in texts.items() for text in some if text.strip()}
        at, by = self.tools.stamp(), Provenance(run=self.tools.name, model=self.tools.reflector.name)
        here = {bullet.id: bullet for bullet in self.playbook.active}
        gone = [
            Retire(bullet_id=id, reason="the optimizer left it out")
            for id, bullet in here.items()
            if id not in wanted and bullet.domain in texts and not bullet.locked
        ]
        added = [
            Add(bullet=Bullet(id=id, content=text, domain=domain, provenance=by, created_at=at))
            for id, (domain, text) in wanted.items()
            if id not in here
        ]
        trained_on = fingerprints(task.question for task in self.tasks)
        return Batch(id=f"{self.tools.name}/1.0", deltas=(*gone, *added), at=at, trained_on=trained_on)

    def _check(self, texts: Any) -> None:
        """What somebody else's code has made, so that it may be anything."""
        gave = f"the optimizer {self.name!r} gave"
        shape = "texts stand in lists by domain, such as {'oslo': ['a text', 'another']}; see docs/extend-optimizer.md"
        if not isinstance(texts, Mapping):
            raise InputError(f"{gave} a {type(texts).__name__}; {shape}")
        domains = dict.fromkeys(task.domain for task in self.tasks)
        for domain, some in texts.items():
            if domain not in domains:
                known = ", ".join(map(repr, domains))
                raise InputError(f"{gave} texts for the domain {domain!r:.60}, which no task has; there are {known}")
            if isinstance(some, str) or not isinstance(some, Sequence) or not all(isinstance(text, str) for text in some):
                raise InputError(f"{gave} {some!r:.60} for {domain!r}; {shape}")

    def progress(self, batch: Batch) -> Progress:
        """What all of it took."""
        domains = dict.fromkeys(attempt.task.domain for attempt in self.attempts)
        return replace(
            self._spent(),
            attempts=Tally.of(each.score.total for each in self.attempts),
            by_domain={
                name: Tally.of(each.score.total for each in self.attempts if each.task.domain == name)
                for name in sorted(domains)
            },
            unusable=sum(bool(reflection.unusable) for reflection in self.reflections),
            added=sum(isinstance(delta, Add) for delta in batch.deltas),
            retired=sum(isinstance(delta, Retire) for delta in batch.deltas),
        )


class TextOptimizer(Protocol):
    """A way to find the texts of a playbook: what a class of one's own must have. It is made without arguments."""

    async def optimize(self, bench: Workbench) -> Texts:
        """The best texts that were found; those of the playbook that are not among them are retired."""


class LearnRun(Protocol):
    """How a run of `train playbook` learns, from where it is to its end; `trainer.learn` is one."""

    async def __call__(
        self, tasks: Sequence[Task], run: PlaybookRun, tools: TrainerTools, config: LearnConfig, watcher: Watcher | None = None
    ) -> Learned: ...


def learner(name: str) -> LearnRun:
    """How a run learns by an optimizer's name, or `module:Class`.

    Raises:
        InputError: There is none, or it has no `optimize`.
        MissingExtra: Its library is not installed.
    """
    if name == "playbook":
        return learn
    made: TextOptimizer = extension.make("optimizers", name)

    async def by(
        tasks: Sequence[Task], run: PlaybookRun, tools: TrainerTools, config: LearnConfig, watcher: Watcher | None = None
    ) -> Learned:
        bench = Workbench(
            tasks=tasks,
            playbook=run.playbook,
            tools=tools,
            config=config,
            watcher=watcher or Unwatched(),
            before=run.progress,
            name=name,
        )
        with extension.named("optimizers", name):
            return await learn_by(made, tasks, run, bench)

    return by


async def learn_by(optimizer: TextOptimizer, tasks: Sequence[Task], run: PlaybookRun, bench: Workbench) -> Learned:
    """Let an optimizer work, and merge what it found. A run that is gone on with begins it again, unless it was merged; where
    the limit on cost stopped it, what it spent is on record, and counts.

    Raises:
        TaskError: A task is held out; no model was asked.
    """
    for task in tasks:
        if task.split is Split.HELD_OUT:
            raise TaskError(f"{task.id} is held out: nobody may learn from it; train on other tasks")
    if run.tasks:
        return Learned(run.playbook, run.progress, finished=True)
    try:
        batch, behind = bench.batch(await _asked(optimizer, bench)), len(tasks)
    except BudgetSpent:
        # Nothing is merged but what was spent.
        batch, behind = replace(bench.batch({}), id=f"{bench.tools.name}/0.{run.batches + 1}", trained_on=frozenset()), 0
    run.commit(batch, bench.progress(batch), frozenset(), tasks=behind)
    bench.watcher.merged(run.playbook, run.progress, behind)
    return Learned(run.playbook, run.progress, finished=behind > 0)


async def _asked(optimizer: TextOptimizer, bench: Workbench) -> Texts:
    found: Any = optimizer.optimize(bench)
    if not isawaitable(found):
        gave = f"the optimizer {bench.name!r} gave a {type(found).__name__} at once"
        raise InputError(f"{gave}: optimize must be an `async def`; see docs/extend-optimizer.md")
    texts: Texts = await found
    return texts
