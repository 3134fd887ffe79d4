"""Two agents on the held-out tasks of a data set: with a playbook or another, on a model or another."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from journeyman import models
from journeyman.agents.answer import Answer, MakeAgent
from journeyman.agents.attempt import Agent, Attempt, refusal
from journeyman.core.candidate import BASE, Candidate, Kind
from journeyman.core.errors import ModelBusy, ModelError, ModelRefused
from journeyman.core.gate import Gate
from journeyman.core.playbook import Playbook
from journeyman.core.release import Stage
from journeyman.core.task import Split
from journeyman.experiments.compare import EvaluateConfig, EvaluationReport, evaluate_agents
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
from journeyman.experiments.run import Run
from journeyman.io.files import sha256
from journeyman.models.base import Model
from journeyman.models.embedders import Embedder
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.retrieval import chooser
from journeyman.stores import AttemptRecord
from journeyman.tasks.base import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvaluation:
    """Two playbooks, or two models, on the held-out tasks of a data set."""

    evaluator: HeldOutEvaluator
    model: Model
    dataset: Dataset
    embedder: Embedder
    gate: Gate
    attempts_per_task: int = 1
    token_budget: int = 2000
    rival: Model | None = None
    """The baseline's model, where it is another one."""
    agent: MakeAgent = Answer
    """Who attempts the tasks, on both sides."""
    run: Run | None = None
    """Whose attempts they are, where they are to be kept beside what they show."""
    weights: Candidate | None = None
    """What was learned in the weights of `model` and not in the rival's, where that is examined and not the playbook."""
    trained_on: frozenset[str] = field(default_factory=frozenset)
    """`task.fingerprint`s of what the models were trained on, as far as it is known. Playbooks say it themselves."""

    async def evaluate(
        self,
        playbook: Playbook,
        against: Playbook,
        *,
        id: str,
        done: Callable[[int, int], None] = lambda _, __: None,
        resumed: bool = False,
    ) -> EvaluationReport:
        """Let both attempt the tasks, ask the gate, and keep what was found.

        Args:
            id: Of the run or command; part of the evaluation's.
            done: Is told after each attempt how many are done, and of how many.
            resumed: Whether the evaluation of a run of this id may be kept already, and is then taken again.

        Raises:
            ModelRefused: A model said no for good to every attempt of a side.
            InputError: All held-out tasks were trained on.
        """
        new, old = self.weights or candidate_of(playbook), candidate_of(against)

        async def measure(look: Look) -> EvaluationReport:
            return await self._measured(playbook, against, look, id, done)

        # Of two models each side says which it is.
        apart = self.rival is not None and not self.weights
        subject = Subject(
            candidate=(new.id if new else BASE) + (f"@{self.model.name}" if apart else ""),
            baseline=(old.id if old else BASE) + (f"@{self.rival.name}" if self.rival is not None and apart else ""),
            tasks=self.dataset.split(Split.HELD_OUT),
            settings=self._settings(playbook),
            deterministic=self._deterministic,
            trained_on=self.trained_on | playbook.trained_on | against.trained_on,
            learned=new,
        )
        return await self.evaluator.evaluate(
            subject,
            measure,
            id=id,
            records=lambda report: [(subject.baseline, report)],
            attempts=self._attempted,
            restore=EvaluationReport.restored if resumed else None,
        )

    def _attempted(self, report: EvaluationReport) -> Iterable[AttemptRecord]:
        return self.run.records((*report.baseline_attempts, *report.candidate_attempts)) if self.run else ()

    def _settings(self, playbook: Playbook) -> dict[str, object]:
        """What can change the answer beside the tasks and the candidate.

        Learned weights are known by their content, wherever the folder lies that the model's name tells.
        """
        known = [self.rival] if self.weights else [self.model, self.rival]
        shown = candidate_of(playbook) if self.weights else None
        return {
            "models": [[model.name, _content(model.name)] for model in known if model],
            "playbook": shown.id if shown else "",
            "gate": repr(self.gate),
            "trials": self.attempts_per_task,
            "token_budget": self.token_budget,
            "embedder": self.embedder.name,
            "agent": _named(self.agent),
            "verifier": _named(type(self.dataset.verifier)),
        }

    @property
    def _deterministic(self) -> bool:
        parts: list[Any] = [self.model, self.rival or self.model, self.agent, self.dataset.verifier]
        return all(getattr(part, "deterministic", False) for part in parts)

    async def _measured(
        self, playbook: Playbook, against: Playbook, look: Look, id: str, done: Callable[[int, int], None]
    ) -> EvaluationReport:
        finished: list[Attempt] = []

        def count(attempt: Attempt) -> None:
            finished.append(attempt)
            done(len(finished), 2 * self.attempts_per_task * len(look.tasks))

        config = EvaluateConfig(
            attempts_per_task=self.attempts_per_task,
            looks=look.before,
            contaminated=look.contaminated,
            prefix=f"{id}/evaluation",
            clock=self.evaluator.clock,
            done=count,
        )
        report = await evaluate_agents(
            self._agent(self.model, playbook, self.weights or candidate_of(playbook)),
            self._agent(self.rival or self.model, against, candidate_of(against)),
            look.tasks,
            self.dataset.verifier,
            gate=self.gate,
            config=config,
        )
        see_answers(report)
        return report

    def _agent(self, model: Model, playbook: Playbook, candidate: Candidate | None) -> Agent:
        if candidate is None:
            return self.agent(model=model)
        if not playbook.active:
            return self.agent(model=model, candidate_id=candidate.id)
        choose = chooser(playbook, self.embedder, budget=self.token_budget)
        return self.agent(model=model, choose=choose, candidate_id=candidate.id)


def see_answers(report: EvaluationReport) -> None:
    """See that attempts could be made at all.

    Raises:
        ModelRefused: A model said no for good to every attempt of a side.
        ModelError: None of a side was answered.
    """
    for attempts in (report.baseline_attempts, report.candidate_attempts):
        if reason := refusal(attempts):
            raise ModelRefused(f"{reason}. Nothing could be examined: every attempt met with this")
        if attempts and all((attempt.trace.error or "").startswith(f"{ModelBusy.__name__}: ") for attempt in attempts):
            raise ModelError(f"no attempt at the held-out tasks was answered: {attempts[0].trace.error}")


def adapter_trained_on(model: str) -> frozenset[str]:
    """What the adapter was trained on that a model's name holds behind a plus."""
    from journeyman.optimizers.weights.adapters import read_trained_on

    _, _, adapter = model.rpartition("+")
    return read_trained_on(Path(adapter)) if adapter != model and adapter else frozenset()


def candidate_of(playbook: Playbook) -> Candidate | None:
    """A playbook as something that can be evaluated and released; `None` when it has no bullets, for that is no candidate.

    How far it was released, when, by which run and from which questions are left out: what the gate let pass is the candidate
    that the gate saw. So is what waits for a person, as nobody is shown it.
    """
    if not playbook.active:
        return None
    bullets = tuple(replace(bullet, stage=Stage.SHADOW, updated_at="") for bullet in playbook.bullets if not bullet.held)
    content = replace(playbook, bullets=bullets, batches=frozenset(), created_at="", training_config={}, trained_on=frozenset())
    return Candidate(kind=Kind.PLAYBOOK, body=files.dumps(content))


def _content(model: str) -> str:
    """A digest of the file that a model's name tells, which may be another one tomorrow: recorded outputs, or an adapter."""
    parsed = models.parse(model)
    if parsed.kind == "recorded":
        file = Path(parsed.rest.partition("#")[0])
    else:
        file = Path(models.split_adapter(parsed.rest)[1] or "none") / "adapter_model.safetensors"
    return sha256(file) if file.is_file() else ""


def _named(kind: Any) -> str:
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', repr(kind))}"
