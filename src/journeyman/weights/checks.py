"""What can be known to be wrong with a training before there is a run. Nothing is written, and torch is not loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from journeyman import rewards
from journeyman.errors import InputError, MissingExtra, SettingError
from journeyman.learn.playbook import files
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.data import read
from journeyman.learn.weights.rows import CompletionGroup as Group
from journeyman.learn.weights.rows import LabelledCompletion as Labelled
from journeyman.learn.weights.rows import Row
from journeyman.models import embedded_weights
from journeyman.tasks.base import Dataset
from journeyman.weights import launching, tasks
from journeyman.weights.settings import RunSettings

_READ: Mapping[str, tuple[type[Row], ...]] = {
    "kto": (Labelled, Group),
    "grpo-offline": (Group,),
    "dpo": (Labelled, Group),
    "rft": (Labelled, Group),
}
"""What the methods that learn from rows can read."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a training learns from."""

    rows: Sequence[Row]
    dataset: Dataset | None

    def examples(self, method: str) -> int:
        """What one time through the rows is, at most: completions, or a pair of each group."""
        if method == "dpo":
            return len(self.rows)
        return sum(len(row.completions) if isinstance(row, Group) else 1 for row in self.rows)


def gather(config: TrainingConfig, settings: RunSettings, rows: Sequence[Row] | None = None) -> Material:
    """Read all that a training is given, and see that it can be trained on.

    Args:
        rows: What is learned from, instead of a file.

    Raises:
        InputError: A file or setting cannot be used.
        MissingExtra: Something is asked for that is not installed.
    """
    found = list(read(config.data)) if config.data and rows is None else list(rows or ())
    _fitting(config, found, given=bool(config.data) or rows is not None)
    launching.check(config, settings)
    _named(config)
    dataset = tasks.load(config, settings.held_out) if config.dataset_name else None
    for domain in settings.earlier:
        _earlier(config, domain)
    return Material(tasks.learnable(found, dataset) if dataset else found, dataset)


def installed() -> None:
    """See that what trains is here.

    Raises:
        MissingExtra: It is not.
    """
    for name in ("torch", "transformers", "trl", "peft", "accelerate", "datasets"):
        if find_spec(name) is None:
            raise MissingExtra(f"{name} is missing: pip install 'journeyman[weights]'")


def _fitting(config: TrainingConfig, rows: Sequence[Row], *, given: bool) -> None:
    """Refuse rows that the method cannot learn from."""
    if config.method == "grpo" and given:
        raise SettingError(
            "data",
            "{}: grpo judges fresh completions, of tasks (--tasks); from recorded ones learns --method grpo-offline",
        )
    if not given and not config.dataset_name:
        of_rows = "a file of rows (--data FILE), or " if config.method in _READ else ""
        raise InputError(f"{config.method} needs something to learn from: {of_rows}tasks (--tasks desk --domain oslo)")
    if given and not rows:
        raise SettingError("data", f"{{}}: there are no rows in {config.data or 'what was given'}")
    wrong = next((row for row in rows if not isinstance(row, _READ[config.method])), None)
    if wrong is not None:
        raise SettingError("data", f"{{}}: {config.method} cannot learn from such rows; build them with --method grpo")


def _named(config: TrainingConfig) -> None:
    """See that what is named is there, as far as this machine knows."""
    if config.input_path and config.dataset_name == "desk":
        raise SettingError("input_path", "{} is for other tasks: the desk makes its own")
    if config.context:
        files.load(config.context)
    for name in config.rewards:
        rewards.load(name)
    if config.tracker in ("trackio", "wandb") and find_spec(config.tracker) is None:
        raise MissingExtra(f"{config.tracker} is missing: pip install {config.tracker}, or leave the tracker at tensorboard")
    kind, colon, rest = config.base_model.partition(":")
    if kind == "embedded":
        embedded_weights(rest or "base")
        return
    named = rest if colon and kind == "local" else config.base_model
    folder = Path(named)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise SettingError("base_model", f"{{}}: {folder} holds no model: it has no config.json")
    if not folder.is_dir() and (named.startswith((".", "/", "~")) or named.count("/") > 1):
        raise SettingError("base_model", f"{{}}: there is no folder {folder}; name one, a Hugging Face id, or embedded:SIZE")


def _earlier(config: TrainingConfig, domain: str) -> None:
    """What was learned before is examined at the very end: a name that is none is told at the beginning."""
    if not config.dataset_name:
        raise SettingError("earlier", "{} needs --tasks, of which it is a domain")
    try:
        tasks.load(replace(config, domain=domain), 1)
    except InputError as error:
        raise SettingError("earlier", f"{{}}: {error}") from None
