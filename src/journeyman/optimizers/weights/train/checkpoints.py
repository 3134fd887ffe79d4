"""Checkpoints: each a folder that is whole or not there, from which a training goes on as though it had never stopped.

`transformers.Trainer` writes what it knows (adapter, optimizer, scheduler, random states, its own state) below
`checkpoints/.unfinished`; what it does not know is added, everything is flushed to the disk, and then the folder gets its
name, `step-00010`, in one rename. `step-00000` holds the adapter that the training started from and nothing else.

Nothing in them is unpickled freely: weights are safetensors, the other states are read with `weights_only`.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from peft import set_peft_model_state_dict
from safetensors.torch import load_file

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.job import TrainingJob

UNFINISHED = ".unfinished"
STATE = "journeyman.json"
"""The state that `transformers` does not know, that of `trainer.curriculum`: `{"curriculum": …}`, or `{}` without one."""
_NAME = re.compile(r"step-(\d{5,})")
_UNREAD = {"training_args.bin", "README.md"}
"""Written beside the rest, and read by nobody; the first is a pickle."""


def folder_of(job: TrainingJob, step: int) -> Path:
    return job.checkpoints / f"step-{step:05}"


def steps(job: TrainingJob) -> list[int]:
    """Of which updates there are checkpoints, in their order; 0 is the start, from which nothing can go on."""
    if not job.checkpoints.is_dir():
        return []
    matches = (_NAME.fullmatch(path.name) for path in job.checkpoints.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def newest(job: TrainingJob) -> Path | None:
    """The checkpoint that `train(resume_from_checkpoint=…)` goes on from."""
    trained = [step for step in steps(job) if step]
    return folder_of(job, trained[-1]) if trained else None


def step_of(folder: Path) -> int:
    return int(_NAME.fullmatch(folder.name)[1])  # type: ignore[index]  # folders are named by `folder_of`


def save_start(job: TrainingJob, trainer: Any) -> None:
    """Keep the adapter that training starts from, once."""
    target = folder_of(job, 0)
    if target.exists():
        return
    part = job.checkpoints / UNFINISHED / target.name
    trainer.save_model(str(part), _internal_call=True)
    _publish(trainer, part, target)


def finish(job: TrainingJob, trainer: Any, step: int) -> Path:
    """Give what `transformers` has just written its name, with the states that it does not know."""
    part = job.checkpoints / UNFINISHED / f"checkpoint-{step}"
    if trainer.is_world_process_zero():
        curriculum = getattr(trainer, "curriculum", None)
        states = {} if curriculum is None else {"curriculum": curriculum.state_dict()}
        (part / STATE).write_text(json.dumps(states), encoding="utf-8")
    target = folder_of(job, step)
    _publish(trainer, part, target)
    return target


def restore_states(folder: Path, trainer: Any) -> None:
    """Load the curriculum's state, which `transformers` does not know, where the checkpoint and the trainer have one."""
    states = json.loads((folder / STATE).read_text(encoding="utf-8"))
    if "curriculum" in states and getattr(trainer, "curriculum", None) is not None:
        trainer.curriculum.load_state_dict(states["curriculum"])


def load_adapter(model: Any, folder: Path) -> None:
    """Load the adapter of a checkpoint into a `peft.PeftModel`.

    Raises:
        InputError: It holds weights that the model does not have.
    """
    weights = load_file(folder / "adapter_model.safetensors")
    loaded = set_peft_model_state_dict(model, weights, adapter_name=model.active_adapter)
    if loaded.unexpected_keys:
        raise InputError(f"{folder} holds weights that this model has not, such as {loaded.unexpected_keys[0]}")


def prune(job: TrainingJob, keep: Iterable[int]) -> None:
    """Remove all but these, the start and the newest."""
    saved = steps(job)
    for step in set(saved) - {0, *saved[-1:], *keep}:
        folder = folder_of(job, step)
        # Renamed first: a folder that is half removed must not look like a checkpoint.
        trash = job.checkpoints / UNFINISHED / f"old-{step}"
        trash.parent.mkdir(exist_ok=True)
        shutil.rmtree(trash, ignore_errors=True)
        folder.rename(trash)
        shutil.rmtree(trash)


def clear_unfinished(job: TrainingJob) -> None:
    """Remove what a killed process left half written."""
    shutil.rmtree(job.checkpoints / UNFINISHED, ignore_errors=True)


def _publish(trainer: Any, part: Path, target: Path) -> None:
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        for name in _UNREAD:
            (part / name).unlink(missing_ok=True)
        for path in (*part.rglob("*"), part):
            flush(path)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        flush(target.parent)
    trainer.accelerator.wait_for_everyone()


def flush(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
