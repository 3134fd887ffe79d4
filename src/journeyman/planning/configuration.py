"""The file of settings that users of earlier systems have: `training.phase1_supervised` and `training.phase2_rl`."""

from pathlib import Path
from typing import Any

import yaml

from journeyman.errors import InputError
from journeyman.learn.playbook.files import read_text

_SECTIONS = {
    "1": (
        "phase1_supervised",
        {
            "num_epochs": "epochs",
            "batch_size": "batch_size",
            "learning_rate": "learning_rate",
            "lambda_dag": "lambda_dag",
            "synthetic_augmentations": "synthetic_augmentations",
        },
    ),
    "2": (
        "phase2_rl",
        {
            "learning_rate": "learning_rate",
            "num_episodes": "episodes",
            "gamma": "gamma",
            "epsilon": "clip_epsilon",
            "max_steps_per_episode": "most_steps",
        },
    ),
}
"""By phase: the section, and its settings by the names that we have for them."""
_WEIGHTS = ("alpha", "beta", "gamma_latency", "shaped_reward")
"""Of the documented reward."""
_LEFT = ("algorithm", "train_data_size")
"""Settings that say nothing here: there is one algorithm, and the data have the size that they have."""


def _plain(value: Any) -> Any:
    """YAML takes `1e-3` for a word, and `100.0` for no whole number."""
    if not isinstance(value, str | float):
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    return int(number) if number.is_integer() else number


def read(path: Path, phase: str) -> dict[str, Any]:
    """The settings of a phase, by our names; the weights of the documented reward under "weights".

    Raises:
        InputError: It is no YAML, has no such section, or a setting that is not known or no number.
    """
    section, names = _SECTIONS[phase]
    try:
        told = yaml.safe_load(read_text(path))["training"][section]
        found = {name: value if name in _LEFT else _plain(value) for name, value in dict(told).items()}
    except yaml.YAMLError as error:
        raise InputError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} has no training.{section} with settings in it") from None
    weights = _WEIGHTS if phase == "2" else ()
    known = {*names, *_LEFT, *weights}
    for name, value in found.items():
        if name not in known:
            raise InputError(f"{path}: training.{section} has no setting {name!r}; there are {', '.join(sorted(known))}")
        if name not in _LEFT and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{path}: {name} in training.{section} is {value!r}, and must be a number")
    settings: dict[str, Any] = {ours: found[name] for name, ours in names.items() if name in found}
    reward = {name: float(found[name]) for name in weights if name in found}
    return settings | ({"weights": reward} if reward else {})
