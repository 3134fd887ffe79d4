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

from journeyman.errors import InputError
from journeyman.learn.weights.job import TrainingJob

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
    found = (_NAME.fullmatch(path.name) for path in job.checkpoints.iterdir())
    return sorted(int(match[1]) for match in found if match)


def newest(job: TrainingJob) -> Path | None:
    """The checkpoint that `train(resume_from_checkpoint=…)` goes on from."""
    made = [step for step in steps(job) if step]
    return folder_of(job, made[-1]) if made else None


def step_of(folder: Path) -> int:
    return int(_NAME.fullmatch(folder.name)[1])  # type: ignore[index]  # folders are named by `folder_of`


def keep_start(job: TrainingJob, trainer: Any) -> None:
    """Keep the adapter that training starts from, once."""
    target = folder_of(job, 0)
    if target.exists():
        return
    made = job.checkpoints / UNFINISHED / target.name
    trainer.save_model(str(made), _internal_call=True)
    _publish(trainer, made, target)


def finish(job: TrainingJob, trainer: Any, step: int) -> Path:
    """Give what `transformers` has just written its name, with the states that it does not know."""
    made = job.checkpoints / UNFINISHED / f"checkpoint-{step}"
    if trainer.is_world_process_zero():
        curriculum = getattr(trainer, "curriculum", None)
        found = {} if curriculum is None else {"curriculum": curriculum.state_dict()}
        (made / STATE).write_text(json.dumps(found), encoding="utf-8")
    target = folder_of(job, step)
    _publish(trainer, made, target)
    return target


def restore_states(folder: Path, trainer: Any) -> None:
    """Hand back the states that `transformers` does not know."""
    found = json.loads((folder / STATE).read_text(encoding="utf-8"))
    if "curriculum" in found and getattr(trainer, "curriculum", None) is not None:
        trainer.curriculum.load_state_dict(found["curriculum"])


def put_back(model: Any, folder: Path) -> None:
    """Give a `peft.PeftModel` the adapter of a checkpoint."""
    weights = load_file(folder / "adapter_model.safetensors")
    missed = set_peft_model_state_dict(model, weights, adapter_name=model.active_adapter)
    if missed.unexpected_keys:
        raise InputError(f"{folder} holds weights that this model has not, such as {missed.unexpected_keys[0]}")


def prune(job: TrainingJob, keep: Iterable[int]) -> None:
    """Remove all but these, the start and the newest."""
    made = steps(job)
    for step in set(made) - {0, *made[-1:], *keep}:
        doomed = folder_of(job, step)
        # Renamed first: a folder that is half removed must not look like a checkpoint.
        gone = job.checkpoints / UNFINISHED / f"old-{step}"
        gone.parent.mkdir(exist_ok=True)
        shutil.rmtree(gone, ignore_errors=True)
        doomed.rename(gone)
        shutil.rmtree(gone)


def clear_unfinished(job: TrainingJob) -> None:
    """Remove what a killed process left half written."""
    shutil.rmtree(job.checkpoints / UNFINISHED, ignore_errors=True)


def _publish(trainer: Any, made: Path, target: Path) -> None:
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        for name in _UNREAD:
            (made / name).unlink(missing_ok=True)
        for path in (*made.rglob("*"), made):
            flush(path)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
        flush(target.parent)
    trainer.accelerator.wait_for_everyone()


def flush(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
