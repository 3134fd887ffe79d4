"""Options and a file of settings become the settings of a phase."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from journeyman.errors import InputError
from journeyman.planning import configuration
from journeyman.release import Stage

if TYPE_CHECKING:
    from journeyman.learn.planner.supervised import SupervisedConfig
    from journeyman.planning.reinforcing import ReinforceConfig
    from journeyman.rewards.utility import WeightedSumReward

CONCURRENCY = 4


def merged(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options, over what the file of settings says."""
    if not given.get("config_file"):
        return dict(given)
    return {**configuration.read(given["config_file"], given["phase"]), **given}


def supervised(options: Mapping[str, Any]) -> "SupervisedConfig":
    """Of phase 1."""
    from journeyman.learn.planner.supervised import SupervisedConfig

    names = {
        "epochs": "epochs",
        "batch_size": "batch_size",
        "learning_rate": "learning_rate",
        "lambda_dag": "lambda_dag",
        "synthetic_augmentations": "augmentations",
        "validation": "validation_share",
        "patience": "patience",
        "seed": "seed",
    }
    given = {name: options[option] for option, name in names.items() if option in options}
    if given.get("patience") == 0:
        given["patience"] = given.get("epochs", SupervisedConfig.epochs)
    return SupervisedConfig(**given)


def reinforced(options: Mapping[str, Any]) -> "ReinforceConfig":
    """Of phase 2."""
    from journeyman.learn.planner.ppo import PPOConfig
    from journeyman.planning.reinforcing import ReinforceConfig

    names = {"episodes": "episodes", "learning_rate": "learning_rate", "seed": "seed", "gamma": "gamma",
             "clip_epsilon": "clip_epsilon", "most_steps": "most_steps"}  # fmt: skip
    dollars, seconds = pay(options.get("pay", ""))
    # Live, each choice is paid for what it spent and spoilt itself, so nothing that comes after is its own.
    usual = {} if options.get("replay") else {"gamma": 0.0, "learning_rate": 3e-3}
    given = {name: options[option] for option, name in names.items() if option in options}
    return ReinforceConfig(
        ppo=PPOConfig.measured(**{**usual, **given}),
        reward=_documented(options) if options.get("reward") == "documented" else None,
        dollars_per_success=dollars,
        seconds_per_success=seconds,
        evaluate=options.get("evaluate", True),
        target_stage=Stage(options.get("target_stage", "shadow")),
        force=bool(options.get("force")),
    )


def _documented(options: Mapping[str, Any]) -> "WeightedSumReward":
    from journeyman.rewards.utility import WeightedSumReward

    return WeightedSumReward(**options.get("weights", {}))


def pay(text: str) -> tuple[float | None, float | None]:
    """`0.002,30` is two tenths of a cent and half a minute for one more success; either may be left out.

    Raises:
        InputError: It is no such pair.
    """
    if not text:
        return None, None
    money, _, time = text.partition(",")
    try:
        found = tuple(float(part) if part.strip() else None for part in (money, time))
    except ValueError:
        raise InputError(f"--success-value {text!r} is not USD,SECONDS, such as 0.002,30; leave one out as in ,30") from None
    return found[0], found[1]
