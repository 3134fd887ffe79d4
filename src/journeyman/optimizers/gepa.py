"""GEPA, of the package `gepa`: texts that evolve by reflection, kept where they do better on some task (a Pareto front).

Agrawal et al., "GEPA: Reflective Prompt Evolution Can Outperform Reinforcement Learning", 2025, arXiv:2507.19457. Here each
domain is a component of its candidate, and each line of a component a bullet. Journeyman's Reflector proposes; what evolved is
examined on held-out tasks and by the gate like any other playbook.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import gepa

from journeyman.agents.attempt import Attempt
from journeyman.core.errors import InputError
from journeyman.core.playbook import Insight
from journeyman.core.task import Task
from journeyman.optimizers.playbook.text_optimizer import BudgetSpent, Texts, Workbench

ATTEMPTS = 4
"""For each training task and epoch, at most: the budget of the search, which GEPA calls metric calls."""
_MINIBATCH = 3
"""Tasks that a proposal is drawn from and tried on first, as in the paper."""
_FEWEST = 2
_T = TypeVar("_T")
Candidate = dict[str, str]
log = logging.getLogger(__name__)


class Gepa:
    """Evolves the texts of a playbook. Implements `optimizers.playbook.text_optimizer.TextOptimizer`."""

    async def optimize(self, bench: Workbench) -> Texts:
        """Search until the budget is spent: a third of the tasks say which candidate is best, proposals come from the others.

        Raises:
            InputError: There are too few tasks.
        """
        if len(bench.tasks) < _FEWEST:
            raise InputError(
                f"GEPA needs at least {_FEWEST} training tasks, one to learn from and one to choose by; give it more"
            )
        apart = max(1, len(bench.tasks) // 3)
        adapter = _Adapter(bench, asyncio.get_running_loop())
        found = await asyncio.to_thread(
            gepa.optimize,
            seed_candidate=_component(bench.texts),
            trainset=list(bench.tasks[apart:]),
            valset=list(bench.tasks[:apart]),
            adapter=adapter,
            reflection_minibatch_size=min(_MINIBATCH, len(bench.tasks) - apart),
            max_metric_calls=ATTEMPTS * bench.config.epochs * len(bench.tasks),
            stop_callbacks=adapter.stop,
            logger=_Quiet(),
            seed=bench.config.seed,
        )
        best: Candidate = found.best_candidate
        return _texts(best)


class _Adapter:
    """GEPA's way to the tasks. It works in a thread of its own, and models are asked in the loop that they belong to."""

    def __init__(self, bench: Workbench, loop: asyncio.AbstractEventLoop) -> None:
        self._bench, self._loop = bench, loop
        self._made: dict[str, Attempt] = {}
        self._iterations = 0

    def stop(self, _: Any) -> bool:
        """Whether to end although the budget is not spent: where all is solved, iterations cost attempts alone. Or because
        nothing more may be spent; the best candidate until then is what was found."""
        self._iterations += 1
        return self._bench.exhausted or self._iterations > ATTEMPTS * self._bench.config.epochs * len(self._bench.tasks)

    def evaluate(self, batch: list[Task], candidate: Candidate, capture_traces: bool = False) -> Any:
        """Attempt the tasks with the candidate in the prompts. What could not be judged counts 0, as GEPA knows no unknown."""
        try:
            made = self._wait(self._bench.attempt(_texts(candidate), batch))
        except BudgetSpent:
            if not self._bench.attempts:
                raise
            return gepa.EvaluationBatch(outputs=[""] * len(batch), scores=[0.0] * len(batch), trajectories=None)
        outputs = [attempt.trace.calls[-1].reply if attempt.trace.calls else "" for attempt in made]
        scores = [attempt.score.total or 0.0 for attempt in made]
        return gepa.EvaluationBatch(outputs=outputs, scores=scores, trajectories=made if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: Candidate, eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The attempts by domain, as records; `attempt` is the id by which `propose_new_texts` finds each again."""
        made = eval_batch.trajectories or []
        self._made = {attempt.trace.id: attempt for attempt in made}
        return {name: [_record(attempt) for attempt in made if attempt.task.domain == name] for name in components_to_update}

    def propose_new_texts(
        self,
        candidate: Candidate,
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> Candidate:
        """The candidate's lines with what the Reflector learned; of two lines about the same thing the newer stays."""
        proposed = {}
        for name in components_to_update:
            lines = candidate[name].splitlines()
            for record in reflective_dataset.get(name, ()):
                for insight in self._learned(self._made[record["attempt"]]):
                    text = " ".join(insight.content.split())
                    head = f"{insight.about}:" if insight.about else text
                    lines = [*(line for line in lines if not line.startswith(head)), text]
            proposed[name] = "\n".join(lines)
        return proposed

    def _learned(self, attempt: Attempt) -> Sequence[Insight]:
        try:
            return self._wait(self._bench.reflect(attempt))
        except BudgetSpent:
            return ()

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Quiet:
    """GEPA's log among ours, instead of on the screen."""

    def log(self, message: str) -> None:
        log.debug(message)


def _record(attempt: Attempt) -> Mapping[str, Any]:
    return {
        "Inputs": {"question": attempt.task.question},
        "Generated Outputs": attempt.trace.calls[-1].reply if attempt.trace.calls else "",
        "Feedback": attempt.score.evidence,
        "attempt": attempt.trace.id,
    }


def _component(texts: Texts) -> Candidate:
    return {domain: "\n".join(" ".join(text.split()) for text in some) for domain, some in texts.items()}


def _texts(candidate: Candidate) -> Texts:
    return {domain: [line for line in text.splitlines() if line.strip()] for domain, text in candidate.items()}
