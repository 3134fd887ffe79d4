"""What a training of a playbook is told."""

from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from journeyman.core.errors import InputError, SettingError
from journeyman.experiments.settings import (
    AttemptSettings,
    ExaminationSettings,
    GateSettings,
    ModelSettings,
    PlaceSettings,
    ReleaseSettings,
    Variable,
)
from journeyman.io.config import HIDDEN, BudgetSettings, Count, config, option
from journeyman.optimizers.playbook.config import LearnConfig, TraceLearningSettings

_COLUMNS = ("question_column", "answer_column", "domain_column")
DESK_TASKS = 100_000
"""As many as are made in seconds. The desk makes its tasks to order, and has only so many to say."""


@config
class TrainingConfig(LearnConfig, ModelSettings, ExaminationSettings, ReleaseSettings, GateSettings, PlaceSettings):
    """Everything that a training run can be told. The names are those of the ACE offline trainer, which many come from."""

    dataset_name: Annotated[str, option("--dataset")] = "gsm8k"
    """gsm8k, custom, humaneval, mbpp, bfcl, desk, live (what the store has recorded and somebody called right), or repository,
    which `journeyman tasks generate` writes; guessed from a file."""
    input_path: Annotated[str, option("--input", metavar="FILE")] = ""
    """The data set: CSV, JSON lines, JSON or Parquet with questions and answers; gsm8k is downloaded when there is none."""
    question_column: Annotated[str, option("--question", metavar="COLUMN")] = ""
    """The column of the file that holds the question; guessed where its name tells."""
    answer_column: Annotated[str, option("--answer", metavar="COLUMN")] = ""
    """The column that holds the answer; likewise."""
    domain_column: Annotated[str, option(metavar="COLUMN")] = ""
    """The column that says to which domain each question belongs, where it is not called domain."""
    held_out_path: Annotated[str, option("--held-out-input", metavar="FILE")] = ""
    """Held-out tasks; else some are set apart from --input, by a hash of the question."""
    dataset_split: Annotated[Literal["train", "validation"], option("--split", why="test is for examining")] = "train"
    """What is trained on; test is for examining."""
    domain: str = ""
    """Only tasks of this domain; for the desk, the shop."""
    num_examples: Count = 100
    """Training tasks."""
    output_playbook_path: Annotated[str, option("--output", metavar="FILE")] = "playbooks/offline_trained.json"
    """Where the playbook is written."""
    output_metrics_path: Annotated[str, option("--metrics-output", metavar="FILE")] = "metrics/offline_training_metrics.json"
    """Where the metrics are written."""
    optimizer: Annotated[str, option(metavar="NAME")] = "playbook"
    """How it learns: playbook, gepa (an extra), or MODULE:CLASS."""
    save_checkpoints: Annotated[bool, option("--checkpoints/--no-checkpoints")] = True
    """Write checkpoints."""
    sandbox: Annotated[str, option(metavar="NAME|URL", default="the strongest there is")] = "auto"
    """Where programs are run, of humaneval, mbpp or scenarios: a kind of sandbox, or the URL of a code service."""
    key_env: Annotated[Variable, HIDDEN] = "OPENAI_API_KEY"
    """The environment variable that holds the key for `base_url`; empty when it needs none."""

    def __post_init__(self) -> None:
        for name in ("num_examples", "held_out"):
            if self.dataset_name == "desk" and getattr(self, name) > DESK_TASKS:
                raise SettingError(name, f"{{}} is {getattr(self, name)}, and must be at most {DESK_TASKS} at the desk")

    @property
    def models(self) -> tuple[str, str]:
        """Generator and reflector, with the defaults filled in."""
        generator = self.generator_model or ("embedded" if self.dataset_name == "desk" else "openai:gpt-5-mini")
        default = "openai:gpt-5-nano" if generator == "openai:gpt-5-mini" and not self.generator_model else generator
        return generator, self.reflector_model or default

    def json(self) -> dict[str, Any]:
        """The settings as a run keeps them: everything but where its store is.

        The usual optimizer and columns are not named, so that runs of before keep their names.
        """
        left_out = {"store", *(name for name in _COLUMNS if not getattr(self, name))}
        left_out |= {"optimizer"} if self.optimizer == "playbook" else set()
        return {key: value for key, value in asdict(self).items() if key not in left_out}


SCENARIOS = "scenarios"
"""What the data set of a training on scenarios is called."""
SKILLBOOK = "playbooks/skillbook.json"


@config
class ScenarioConfig(TrainingConfig):
    """What a training run on scenarios can be told, beyond what any can."""

    dataset_name: Annotated[str, HIDDEN] = SCENARIOS
    question_column: Annotated[str, HIDDEN] = ""
    answer_column: Annotated[str, HIDDEN] = ""
    domain_column: Annotated[str, HIDDEN] = ""
    input_path: Annotated[str, option("--scenarios", metavar="FILE")] = ""
    """The file of scenarios, in YAML or JSON; without one the five that ship with the package."""
    held_out_path: Annotated[str, option("--held-out-input", metavar="FILE")] = ""
    """A file of scenarios to be examined on; each of them needs checks."""
    domain: str = ""
    """Only scenarios of this category."""
    num_examples: Count = 100_000
    """Training scenarios."""
    batch_size: Count = 1
    """One after the other, so that each begins with what the one before taught."""
    evaluate: Annotated[bool, option("--evaluate/--no-evaluate")] = False
    """Needs `held_out_path`."""
    output_playbook_path: Annotated[str, option("--output", metavar="FILE")] = SKILLBOOK
    """Where the playbook is written."""
    output_metrics_path: Annotated[str, option("--metrics-output", metavar="FILE")] = "metrics/scenario_training_metrics.json"
    """Where the metrics are written."""
    max_repairs: Annotated[int, Field(ge=0, le=19)] = 2
    """Calls for a scenario after the first, to repair."""
    results: Annotated[str, HIDDEN] = "results"
    """The folder of the results file."""

    renamed: ClassVar = {"rounds": "max_repairs"}
    converted: ClassVar = {"rounds": lambda calls: calls - 1 if isinstance(calls, int) else calls}

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)
        if self.evaluate and not self.held_out_path:
            raise InputError("an evaluation needs held-out scenarios: name a file of them (--held-out-input), or leave it out")

    @property
    def rounds(self) -> int:
        """Calls at most for one attempt: the first writes, the others repair."""
        return 1 + self.max_repairs


@config
class TracesConfig(TraceLearningSettings, AttemptSettings, ModelSettings, BudgetSettings, PlaceSettings):
    """Everything that a training from recorded traces can be told."""

    agent: str = ""
    """Only traces of this agent; without it each agent has a candidate of its own."""
    by_role: Annotated[bool, option("--by-role")] = False
    """Take episodes of several agents apart: each agent that was handed work learns from its own steps in it."""
    domain: str = ""
    """Only traces of this domain."""
    session: Annotated[str, option(metavar="ID")] = ""
    """Only traces of this session."""
    since: Annotated[str, option(metavar="TIME")] = ""
    """Only traces begun at TIME or after it, instead of `last`."""
    until: Annotated[str, option(metavar="TIME")] = ""
    """Only traces begun before TIME."""
    output_playbook_path: Annotated[str, option("--output", metavar="FILE", default="playbooks/AGENT-DOMAIN.json")] = ""
    """Where the playbook is written; gone on from where it is there."""
    evaluate: Annotated[bool, option("--evaluate/--no-evaluate")] = True
    """Examine it on later requests: model calls alone, no tool is run."""


@config
class DocumentsConfig(ModelSettings, BudgetSettings, PlaceSettings):
    """Everything that a training from documents can be told."""

    source: Annotated[str, option(metavar="NAME")] = ""
    """Only documents of this source: git, messages, devlogs, workspaces, or your own."""
    kind: Annotated[str, option(metavar="NAME")] = ""
    """Only documents of this kind: commit, message, mail, devlog, status, inbox, …"""
    words: Annotated[str, option(metavar="TEXT")] = ""
    """Only documents with all these words; "in quotes" for a phrase."""
    domain: str = ""
    """What the rules are for: only requests of this domain are shown them, once somebody has approved of them."""
    last: Annotated[str, option(metavar="SPAN")] = ""
    """Only documents written in this time: 12h, 30d or 8w."""
    since: Annotated[str, option(metavar="TIME")] = ""
    """Only documents written at TIME or after it, instead of `last`."""
    until: Annotated[str, option(metavar="TIME")] = ""
    """Only documents written before TIME."""
    max_calls: Annotated[int, Field(ge=0)] = 200
    """Calls of models at most, for a run."""
    output_playbook_path: Annotated[str, option("--output", metavar="FILE", default="playbooks/documents-DOMAIN.json")] = ""
    """Where the proposals are written; gone on from where it is there."""
