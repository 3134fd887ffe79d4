"""Configurations of earlier systems as tables of a pipeline, with an account of every key: taken, renamed, without meaning."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import yaml

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.config import TrainingConfig

Fate = Literal["taken", "renamed", "without meaning here"]
Tables = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAccount:
    """What became of a key."""

    key: str
    fate: Fate
    became: str
    """Where it stands now; or why it has no meaning."""


_AGENT_SECTIONS = ("model", "training", "data_collection", "reward_system", "deployment", "monitoring")
"""Sections of a configuration for autonomous agents; the first four are those of its sample."""
_RENAMED: Mapping[str, tuple[str, str]] = {
    "training.learning_rate": ("train", "learning_rate"),
    "training.batch_size": ("train", "batch_size"),
    "training.num_epochs": ("train", "num_epochs"),
    "model.dropout": ("train", "lora_dropout"),
    "model.max_sequence_length": ("train", "max_prompt_tokens"),
    "data_collection.max_samples_per_source": ("collect", "settings.collect.max_samples_per_source"),
    "data_collection.quality_threshold": ("collect", "settings.collect.quality_threshold"),
}
_OF_THE_MODEL = "the base model has its own; [train] base_model chooses another"
_WITHOUT: Mapping[str, str] = {
    "model.hidden_size": _OF_THE_MODEL,
    "model.num_layers": _OF_THE_MODEL,
    "model.vocab_size": _OF_THE_MODEL,
    "model.num_task_types": "a task says its category itself",
    "training.warmup_steps": "the learning rate falls from its first value on",
    "training.weight_decay": "an adapter begins at nothing and is kept near the start by [train] beta",
    "training.gradient_clip_norm": "gradients are always clipped at 1",
    "data_collection.enabled_sources": "[collect.sources] of journeyman.toml names them, and says where they lie",
    "data_collection.batch_size": "what is collected is kept as it is read",
    "reward_system.component_weights": "each task says its own, in its field development.weights; these are the usual ones",
    "reward_system.penalty_multiplier": "each task says its own, in its field development.penalty_multiplier",
    "reward_system.bonus_threshold": "each task says its own, in its field development.bonus_threshold",
}
_SPELLED = {
    "dataset_name": "tasks",
    "input_path": "input",
    "per_device_batch_size": "batch_size",
    "rewards": "reward",
    "context": "playbook",
    "use_bf16": "bf16",
}
"""Settings of a training in Python, and the options that they are."""


def tables_of(file: Path) -> tuple[Tables, list[KeyAccount]]:
    """A configuration for autonomous agents (sections `model`, `training`, `data_collection`, `reward_system`), or the settings
    of one training of weights, as tables of a pipeline.

    Raises:
        InputError: It is neither.
    """
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{file} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or not found:
        raise InputError(f"{file} holds no settings")
    training = {each.name for each in fields(TrainingConfig)}
    if set(found) & set(_AGENT_SECTIONS) and all(isinstance(value, Mapping) for value in found.values()):
        return _agent(file, found)
    if set(found) & training:
        return _training(file, found, training)
    raise InputError(
        f"{file} is no configuration that is known: it has {', '.join(map(str, found))}, and neither "
        f"{', '.join(_AGENT_SECTIONS[:4])} nor settings of a training such as base_model"
    )


def _agent(file: Path, found: Mapping[str, Mapping[str, Any]]) -> tuple[Tables, list[KeyAccount]]:
    tables: Tables = {
        "pipeline": {"name": _name(file)},
        "collect": {"command": "data-collection", "collect_all": True},
        "train": {"command": "train weights", "method": "grpo", **_LEARNS},
        "gate": {"after": ["train"]},
    }
    if "data_collection" not in found:
        del tables["collect"]
    accounts = []
    for key, value in _leaves(found):
        if key in _RENAMED:
            stage, name = _RENAMED[key]
            _put(tables[stage], name, _number(value))
            accounts.append(KeyAccount(key=key, fate="renamed", became=f"[{stage}] {name}"))
        else:
            why = _WITHOUT.get(key) or _WITHOUT.get(key.rpartition(".")[0]) or "it is not known here"
            accounts.append(KeyAccount(key=key, fate="without meaning here", became=why))
    return tables, accounts


_LEARNS = {"tasks": "desk", "domain": "oslo"}
"""What is learned where a configuration names no tasks: that of the embedded model, which needs no key and no network."""


def _training(file: Path, found: Mapping[str, Any], known: set[str]) -> tuple[Tables, list[KeyAccount]]:
    train: dict[str, Any] = {"command": "train weights"}
    accounts = []
    for key, value in found.items():
        if key not in known:
            accounts.append(KeyAccount(key=key, fate="without meaning here", became="no setting of a training is called so"))
            continue
        name = _SPELLED.get(key, key)
        train[name] = _number(value)
        accounts.append(KeyAccount(key=key, fate="renamed" if name != key else "taken", became=f"[train] {name}"))
    if not {"tasks", "data"} & set(train):
        train |= _LEARNS
    return {"pipeline": {"name": _name(file)}, "train": train, "gate": {"after": ["train"]}}, accounts


def _name(file: Path) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in file.stem)


def _leaves(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _number(value: Any) -> Any:
    """YAML takes `1e-4` for a text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _put(table: dict[str, Any], name: str, value: Any) -> None:
    *above, last = name.split(".")
    for each in above:
        table = table.setdefault(each, {})
    table[last] = value
