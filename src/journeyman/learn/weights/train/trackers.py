"""Where the curves of a training can be watched, besides metrics.jsonl: TensorBoard in the run's folder, trackio or W&B."""

import os
from importlib.util import find_spec
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback, TrackioCallback, WandbCallback

from journeyman.errors import MissingExtra
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.job import TrainingJob

PROJECT = "journeyman"
"""What trackio and W&B call all runs together."""


def trackers(config: TrainingConfig, job: TrainingJob) -> list[Any]:
    """The callbacks for `config.tracker`; none for `none`.

    Raises:
        MissingExtra: The tracker is not installed.
    """
    if config.tracker == "none":
        return []
    if find_spec(config.tracker) is None:
        raise MissingExtra(f"{config.tracker} is missing: pip install {config.tracker}, or set the tracker to tensorboard")
    if config.tracker == "tensorboard":
        board = TensorBoardCallback()
        board.logging_dir = str(job.folder / "tensorboard")
        return [board]
    os.environ.setdefault("WANDB_PROJECT", PROJECT)
    return [_Named(job.folder.name), TrackioCallback() if config.tracker == "trackio" else WandbCallback()]


class _Named(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Gives the run its name, and keeps what trackio writes on this machine."""

    def __init__(self, name: str) -> None:
        self._name = name

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        args.run_name, args.project = self._name, PROJECT
        args.trackio_static_space_id = False
