"""What a training run is told, and what it answers."""

import re
from collections.abc import Iterator, KeysView
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from itertools import chain
from typing import Any

from journeyman.core.errors import SettingError
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.playbook import Playbook
from journeyman.core.release import Stage
from journeyman.experiments.compare import EvaluationReport
from journeyman.optimizers.playbook.run import Progress
from journeyman.optimizers.playbook.trainer import LearnConfig

_COUNTS = (
    *("num_examples", "batch_merge_size", "epochs", "attempts", "concurrency", "held_out", "trials"),
    *("token_budget", "min_support", "checkpoint_interval", "least_tasks"),
)


_MOST = {"attempts": 100, "trials": 100, "epochs": 1000, "concurrency": 1000}
"""More is a slip of the finger, and would be dear."""
_SIZES = ("num_examples", "held_out")
DESK_TASKS = 100_000
"""As many as are made in seconds. The desk makes its tasks to order, and has only so many to say."""
_URLS = ("generator_model", "reflector_model", "base_url")
_WORDS: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    float | None: "a number",
}


BARE = "name a server by its bare URL, without user, password or query; a key goes into OPENAI_API_KEY"


def bare(text: str) -> bool:
    """Whether no URL in a model's name has room for a secret: names are shown and kept in many places."""
    return re.search(r"://.*[@?#]", text, re.DOTALL) is None


def _is(value: object, kind: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return kind is bool and isinstance(value, bool)
    return isinstance(value, kind) or (kind in (float, float | None) and isinstance(value, int))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Everything that a training run can be told."""

    dataset_name: str = "gsm8k"
    """`gsm8k`, `custom`, `humaneval`, `mbpp` or `desk`."""
    dataset_split: str = "train"
    input_path: str = ""
    """The data set's file; `gsm8k` is downloaded when there is none."""
    held_out_path: str = ""
    """A file of held-out tasks; without one they are set apart from the data set by a hash of the question."""
    domain: str = ""
    """Only tasks of this domain. The desk's domains are its shops."""
    num_examples: int = 100
    generator_model: str = ""
    reflector_model: str = ""
    """The generator's when it is not named."""
    base_url: str = ""
    """Another server for models named without one. Runs keep it, so that no secret may stand in it."""
    key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key for `base_url`; empty when it needs none."""
    batch_merge_size: int = 10
    similarity_threshold: float = 0.8
    embedder: str = "hashing"
    target_stage: Stage = Stage.SHADOW
    """Where the playbook should go when it passes the gate."""
    force: bool = False
    """Go there even when it does not pass; that is written down."""
    output_playbook_path: str = "playbooks/offline_trained.json"
    output_metrics_path: str = "metrics/offline_training_metrics.json"
    save_checkpoints: bool = True
    checkpoint_interval: int = 50
    """Examples between two checkpoints."""
    epochs: int = 1
    attempts: int = 1
    concurrency: int = 10
    optimizer: str = "playbook"
    """How it learns: `playbook`, `gepa`, or one's own, as `module:Class`."""
    reflect_on: str = "all"
    """`all` attempts or `failures`."""
    token_budget: int = 2000
    min_support: int = 1
    """Different tasks whose reflection must have written a bullet before it is shown. With 2, no attempt alone makes a rule."""
    sandbox: str = "auto"
    """Where programs are run, of data sets or scenarios: a name that `sandbox.load` knows, or the URL of a code service."""
    max_cost: float | None = None
    """US dollars; see `LearnConfig.max_cost`."""
    evaluate: bool = True
    held_out: int = 200
    """Held-out tasks of the final evaluation, at most."""
    trials: int = 1
    """Attempts at each of them."""
    seed: int = 0
    alpha: float = 0.05
    """How often a playbook that is no better may pass, over all looks at the same held-out tasks together."""
    least_gain: float = 0.0
    """The gain that even the low end of the interval must exceed."""
    least_tasks: int = 30
    """Held-out tasks below which nothing passes."""
    project: str = ".journeyman"
    """The folder of the runs."""
    store: str = ".journeyman/journeyman.db"
    """Path or URL; kept out of the run's files, as it may hold a password."""

    def __post_init__(self) -> None:
        for name, fine, must in chain(self._types(), self._servers(), self._values()):
            if not fine:
                shown = "" if name in _URLS else f" is {getattr(self, name)!r}, and"
                raise SettingError(name, f"{{}}{shown} must {must}")

    def _types(self) -> Iterator[tuple[str, bool, str]]:
        for field in fields(self):
            if field.type in _WORDS:
                yield field.name, _is(getattr(self, field.name), field.type), f"be {_WORDS[field.type]}"

    def _servers(self) -> Iterator[tuple[str, bool, str]]:
        """Runs are kept, with their settings, so a secret in a URL would lie about in many places."""
        for name in _URLS:
            yield name, bare(getattr(self, name)), BARE

    def _values(self) -> Iterator[tuple[str, bool, str]]:
        desk = self.dataset_name == "desk"
        yield from (
            *((name, getattr(self, name) >= 1, "be at least 1") for name in _COUNTS),
            *((name, getattr(self, name) <= most, f"be at most {most}") for name, most in _MOST.items()),
            *((name, not desk or getattr(self, name) <= DESK_TASKS, f"be at most {DESK_TASKS} at the desk") for name in _SIZES),
            (
                "dataset_split",
                self.dataset_split in ("train", "validation"),
                "be 'train' or 'validation': test is for examining",
            ),
            ("reflect_on", self.reflect_on in ("all", "failures"), "be 'all' or 'failures'"),
            ("target_stage", self.target_stage in (Stage.SHADOW, Stage.PRODUCTION), "be 'shadow' or 'production'"),
            ("similarity_threshold", 0 < self.similarity_threshold <= 1, "lie above 0 and at most at 1"),
            ("max_cost", self.max_cost is None or self.max_cost > 0, "be above 0"),
            ("alpha", 0 < self.alpha < 1, "lie between 0 and 1"),
            ("least_gain", -1 <= self.least_gain <= 1, "lie between -1 and 1"),
        )

    @property
    def models(self) -> tuple[str, str]:
        """Generator and reflector, with the defaults filled in."""
        generator = self.generator_model or ("embedded" if self.dataset_name == "desk" else "openai:gpt-5-mini")
        default = "openai:gpt-5-nano" if generator == "openai:gpt-5-mini" and not self.generator_model else generator
        return generator, self.reflector_model or default

    @property
    def learning(self) -> LearnConfig:
        return LearnConfig(
            batch_size=self.batch_merge_size,
            epochs=self.epochs,
            attempts=self.attempts,
            successes=self.reflect_on == "all",
            token_budget=self.token_budget,
            min_support=self.min_support,
            max_cost=self.max_cost,
            seed=self.seed,
        )

    @property
    def gate(self) -> BetterOnHeldOut:
        return BetterOnHeldOut(alpha=self.alpha, least_gain=self.least_gain, least_tasks=self.least_tasks)

    def json(self) -> dict[str, Any]:
        """The settings as a run keeps them: everything but where its store is.

        The usual optimizer is not named, so that runs of before keep their names.
        """
        usual = ("store", "optimizer") if self.optimizer == "playbook" else ("store",)
        return {key: value for key, value in asdict(self).items() if key not in usual}


@dataclass(frozen=True, kw_only=True)
class TrainingMetrics:
    """What the metrics file says."""

    progress: Progress
    playbook: Playbook
    started_at: datetime
    ended_at: datetime

    @property
    def total_examples(self) -> int:
        return self.progress.attempts.attempts

    @property
    def correct_answers(self) -> int:
        return self.progress.attempts.correct

    @property
    def accuracy(self) -> float | None:
        return self.progress.attempts.accuracy

    def __getitem__(self, key: str) -> Any:
        return self.json()[key]

    def json(self) -> dict[str, Any]:
        """The documented file: `training_summary`, `insights`, `playbook`, `timing`; and beyond it roles, epochs, domains.

        `accuracy` is of the attempts that could be verified, and null when none could.
        """
        p = self.progress
        return {
            "training_summary": {
                "total_examples": p.attempts.attempts,
                "successful_generations": p.attempts.correct + p.attempts.wrong,
                "failed_generations": p.attempts.unknown,
                "correct_answers": p.attempts.correct,
                "accuracy": p.attempts.accuracy,
            },
            "insights": {
                "total_extracted": p.extracted,
                "helpful": p.helpful,
                "harmful": p.harmful,
                "neutral": p.neutral,
                "refused": dict(p.refused),
                "unusable_reflections": p.unusable,
            },
            "playbook": {
                "bullets_added": p.added,
                "bullets_incremented": p.incremented,
                "bullets_retired": p.retired,
                "final_size": len(self.playbook.active),
            },
            "timing": {
                "start_time": self.started_at.isoformat(timespec="seconds"),
                "end_time": self.ended_at.isoformat(timespec="seconds"),
                "duration_seconds": round(p.seconds, 3),
            },
            "roles": {"generator": p.generator.json(), "reflector": p.reflector.json()},
            "accuracy_by_epoch": {epoch: tally.accuracy for epoch, tally in p.by_epoch.items()},
            "accuracy_by_domain": {domain: tally.accuracy for domain, tally in p.by_domain.items()},
        }


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """How a training run ended."""

    run_id: str
    playbook: Playbook
    metrics: TrainingMetrics
    finished: bool
    """False when it stopped because of `max_cost`; it can be resumed with a higher one, or without."""
    stage: Stage
    reason: str
    """The gate's sentence, or why the gate was not asked."""
    forced: bool
    evaluation: EvaluationReport | None
    playbook_path: str
    metrics_path: str

    @property
    def playbook_size(self) -> int:
        return len(self.playbook.active)

    def __getitem__(self, key: str) -> Any:
        """The attribute of that name: `result["metrics"].accuracy` is what older programs write."""
        if key in self.keys() or key == "playbook":
            return getattr(self, key)
        raise KeyError(key)

    def keys(self) -> KeysView[str]:
        """Those of the documented JSON, so that `dict(result)` works."""
        return self.json().keys()

    def json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "finished": self.finished,
            "playbook_size": self.playbook_size,
            "stage": self.stage.value,
            "forced": self.forced,
            "reason": self.reason,
            "playbook_path": self.playbook_path,
            "metrics_path": self.metrics_path,
            "metrics": self.metrics.json(),
            "evaluation": self.evaluation.json() if self.evaluation else None,
        }
