"""One training from beginning to end, in the process that was started for it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from journeyman.errors import InputError
from journeyman.learn.playbook.runs import write_json
from journeyman.learn.weights.adapters import read_adapter
from journeyman.learn.weights.data import read, write
from journeyman.learn.weights.job import TrainingJob, TrainingReport
from journeyman.learn.weights.rows import Row, TextOrMessages
from journeyman.learn.weights.train import callbacks, checkpoints, loading, sampling, together, trackers
from journeyman.learn.weights.train.base import CompletionJudge, MakeTrainer, ToolEnvironment, TrainingSetup
from journeyman.models.base import Dialect
from journeyman.task import Split, Task

_METHODS = {
    "grpo": ("online", "grpo"),
    "grpo-offline": ("offline", "grpo_offline"),
    "kto": ("preference", "kto"),
    "dpo": ("preference", "dpo"),
    "rft": ("preference", "rft"),
}
"""Module and builder. Strings, as each module loads a trainer that the others do not need."""

Put = Callable[[Task, Dialect], TextOrMessages]
"""How a task is put to a model that reads prompts of that kind."""


def run(job: TrainingJob, put: Put, judge: CompletionJudge | None) -> TrainingReport | None:
    """Train what the folder of the job says, from where it was, and write adapter and report there.

    Args:
        judge: What judges fresh completions; a training that has rows can do without.

    Returns:
        `None` when it was interrupted: it goes on when it is run again.

    Raises:
        InputError: There is nothing that could be learned from.
    """
    config = job.config
    together.initialise()
    loaded = loading.load(config)
    dialect: Dialect = "terse" if getattr(loaded.model.config, "dialect", "") == "terse" else "full"
    work = TrainingSetup(
        config=config,
        job=job,
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        tasks=job.read_tasks(Split.TRAIN),
        rows=(),
        put=lambda task: put(task, dialect),
        judge=judge,
        callbacks=trackers.trackers(config, job),
        environment=_environment_class(config.environment) if config.environment else None,
    )
    if config.method != "grpo":
        work = replace(work, rows=_rows(work))
    module, builder = _METHODS[config.method]
    make: MakeTrainer = getattr(import_module(f"{__package__}.{module}"), builder)
    trainer = make(work)
    outcome = callbacks.train(trainer, work)
    if outcome is None:
        return None
    report = outcome.report(parameters=loaded.parameters, trained=loaded.trained)
    if trainer.is_world_process_zero():
        if report.kept_step:
            _save(work, checkpoints.folder_of(job, report.kept_step) if together.is_sharded(trainer) else loaded.model)
        write_json(job.folder / "report.json", report.json())
    trainer.accelerator.wait_for_everyone()
    return report


def _environment_class(named: str) -> Callable[[], ToolEnvironment]:
    """What makes the world of that name.

    Raises:
        InputError: There is none.
    """
    module, _, name = named.partition(":")
    try:
        environment: Callable[[], ToolEnvironment] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"the environment {named!r} cannot be loaded: {error}; name it as MODULE:NAME") from error
    if not callable(getattr(environment, "reset", None)):
        raise InputError(f"the environment {named!r} is none: it has no reset(task)")
    return environment


def _rows(work: TrainingSetup) -> Sequence[Row]:
    """What is learned from: rows that were given, else completions that the model writes now, before it learns."""
    # One answer for all, as the first one to be done writes them.
    if not together.broadcast(work.job.rows.is_file()):
        if not work.tasks or work.judge is None:
            raise InputError(f"{work.job.folder} has neither rows nor tasks: there is nothing to learn from")
        written = together.gather(sampled(replace(work, tasks=together.shard(work.tasks))))
        if together.is_main_process():
            write(work.job.rows, written)
        together.barrier()
    rows = list(read(work.job.rows))
    if not rows:
        raise InputError(_nothing(work))
    return rows


def _nothing(work: TrainingSetup) -> str:
    written = f"{len(work.tasks)} tasks were attempted"
    if work.config.method == "rft":
        return (
            f"{written}, and no attempt was right: there is nothing to imitate; --method grpo learns from what was nearly right"
        )
    return f"{written}, and no attempt could be judged: there is nothing to learn from"


def sampled(work: TrainingSetup) -> Sequence[Row]:
    """Completions of the tasks by the model as it is, judged, in the form that the method learns from."""
    groups = sampling.groups(work, work.tasks)
    if work.config.method == "rft":
        return [row for row in sampling.labelled(groups) if row.label]
    return sampling.labelled(groups) if work.config.method == "kto" else groups


def _save(work: TrainingSetup, trained: Any) -> None:
    config = work.config
    parent = read_adapter(work.job.folder / config.start_adapter).digest if config.start_adapter else None
    metadata = {"base_model": config.base_model, "method": config.method, "parent": parent, "domain": config.domain}
    loading.save_adapter(trained, work.tokenizer, work.job.adapter, metadata)
