"""Is a model better with what was learned in its weights? Both attempt the same held-out tasks, and the gate decides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from journeyman import app, embed
from journeyman.candidate import Candidate
from journeyman.embed.cache import Cached
from journeyman.examination import Report
from journeyman.experiments.agents import AgentEvaluation
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.learn.playbook import files
from journeyman.models.base import Model
from journeyman.playbook import Playbook
from journeyman.stores import Store
from journeyman.task import Split
from journeyman.tasks.base import Dataset
from journeyman.weights.settings import RunSettings


def model_name(base_model: str, adapter: str = "") -> str:
    """What a base model of a training is called after `--model`, with an adapter on it where one is named."""
    plain = base_model if base_model.partition(":")[0] in ("embedded", "local") else f"local:{base_model}"
    if plain == "embedded":
        plain = "embedded:base"
    return f"{plain}+{adapter}" if adapter else plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Base model against base model with adapter, under the same playbook on both sides."""

    base_model: str
    adapter: str
    """Its folder."""
    start_adapter: str = ""
    """The folder of the adapter that it went on from: what it must be better than."""
    candidate: Candidate
    context: str = ""
    """The file of the playbook, where there is one."""
    bare_baseline: bool = False
    """Leave the playbook out on the other side: it is examined together with the weights."""
    settings: RunSettings
    trained_on: frozenset[str] = frozenset()
    """`task.fingerprint`s of what the adapter was trained on."""

    async def examine(
        self, dataset: Dataset, store: Store, *, id: str, done: Callable[[int, int], None] = lambda _, __: None
    ) -> Report:
        """Let both attempt the held-out tasks, ask the gate, and keep what was found. The look is counted.

        Args:
            id: Of the run; part of the evaluation's.
            done: Is told after each attempt how many are done, and of how many.
        """
        before = app.connect(model_name(self.base_model, self.start_adapter))
        after = app.connect(model_name(self.base_model, self.adapter))
        playbook = files.load(self.context) if self.context else Playbook()
        evaluation = AgentEvaluation(
            evaluator=HeldOutEvaluator(store=store),
            model=after,
            rival=before,
            weights=self.candidate,
            dataset=dataset,
            embedder=Cached(embed.load("hashing")),
            gate=self.settings.gate,
            trials=self.settings.trials,
            trained_on=self.trained_on,
        )
        try:
            against = Playbook() if self.bare_baseline else playbook
            return await evaluation.evaluate(playbook, against, id=id, done=done, resumed=True)
        finally:
            await _closed((before, after))


async def _closed(models: Sequence[Model]) -> None:
    for model in models:
        await model.close()


def provable(dataset: Dataset) -> bool:
    """Whether there are held-out tasks to examine on."""
    return bool(dataset.split(Split.HELD_OUT))
