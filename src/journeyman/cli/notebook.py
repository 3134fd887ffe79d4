"""What the commands do, as functions for a program or a notebook: data in memory, and the options as keywords.

    result = journeyman.train(rows, model="ollama:qwen3:4b", output="mine.json")
    journeyman.evaluate(result.playbook, rows, model="ollama:qwen3:4b")

A keyword is the word of `journeyman train playbook` or `journeyman evaluate` without its dashes; the name of the setting is
taken as well. What is not said is the project's, as its `journeyman.toml` has it, or the default. Where an event loop runs, as
in a notebook, the plain functions work too; `atrain` and `aevaluate` are for `await`.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any, TypedDict, Unpack, overload

import click

from journeyman.agents.attempt import Agent
from journeyman.cli import evaluate as evaluating
from journeyman.cli import train_playbook as training
from journeyman.cli.console import PlaybookScreen, Screen
from journeyman.cli.shared import settled, with_dataset
from journeyman.core.errors import InputError
from journeyman.core.gate import Gate
from journeyman.core.playbook import Playbook
from journeyman.core.task import Split, Task
from journeyman.experiments import compare, wiring
from journeyman.experiments.compare import EvaluateConfig, EvaluationReport
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.playbook.training import OUTPUTS, OfflineTrainer, TrainingResult
from journeyman.io.event_loop import waited
from journeyman.optimizers.playbook.run import PlaybookRun
from journeyman.tasks.base import Dataset, Verifier
from journeyman.tasks.questions import Values

Data = str | PathLike[str] | Values | Iterable[Task] | Iterable[tuple[str, str]]
"""A file, or rows in memory: mappings, a DataFrame, pairs of question and answer, or tasks."""
PlaybookLike = Playbook | TrainingResult | str | PathLike[str]
"""A playbook, or its file; of a file `FILE@3` is its revision 3."""


class DataOptions(TypedDict, total=False):
    """What both functions can be told of the data, the models and the gate."""

    dataset: str
    input: str | PathLike[str]
    held_out_input: Data
    domain: str
    question: str
    answer: str
    domain_column: str
    model: str
    base_url: str
    num_examples: int
    concurrency: int
    token_budget: int
    attempts_per_task: int
    embedder: str
    sandbox: str
    seed: int
    alpha: float
    min_gain: float
    min_tasks: int
    min_clusters: int
    guardrail: Sequence[str]


class TrainOptions(DataOptions, total=False):
    """The words of `journeyman train playbook`, each explained by its help."""

    split: str
    output: str | PathLike[str]
    metrics_output: str | PathLike[str]
    optimizer: str
    checkpoints: bool
    batch_size: int
    epochs: int
    attempts: int
    reflect_on: str
    min_support: int
    similarity_threshold: float
    checkpoint_interval: int
    max_cost: float
    reflector_model: str
    held_out: int
    evaluate: bool
    target_stage: str
    force: bool


class EvaluateOptions(DataOptions, total=False):
    """The words of `journeyman evaluate`, each explained by its help."""

    baseline_model: str
    any_domain: bool


def train(
    data: Data | None = None,
    *,
    initial_playbook: PlaybookLike | None = None,
    resume: str | bool = False,
    progress: bool | None = None,
    **options: Unpack[TrainOptions],
) -> TrainingResult:
    """Learn a playbook, and prove on held-out tasks that it helps: `journeyman train playbook`.

    Args:
        data: A file, rows in memory, or `desk`, whose tasks are made to order.
        initial_playbook: What to go on from.
        resume: Go on with a run under its own settings: the newest unfinished, or the one of this name. Rows that it was
            begun with in memory are given again.
        progress: Told on stderr; without a word only in a notebook or on a terminal.

    Raises:
        InputError: A file, row or option cannot be used; nothing was spent.
    """
    trainer, run = _begun(data, initial_playbook, resume, options)
    with _watched(trainer, run, progress):
        return trainer.finish(run)


async def atrain(
    data: Data | None = None,
    *,
    initial_playbook: PlaybookLike | None = None,
    resume: str | bool = False,
    progress: bool | None = None,
    **options: Unpack[TrainOptions],
) -> TrainingResult:
    """`train`, awaited. Cancelled, it leaves a run that can be gone on with."""
    trainer, run = await asyncio.to_thread(_begun, data, initial_playbook, resume, options)
    with _watched(trainer, run, progress):
        return await trainer.finish_async(run)


@overload
def evaluate(
    playbook: PlaybookLike,
    data: Data | None = None,
    /,
    *,
    against: PlaybookLike | None = None,
    progress: bool | None = None,
    **options: Unpack[EvaluateOptions],
) -> EvaluationReport: ...


@overload
def evaluate(
    candidate: Agent,
    baseline: Agent,
    tasks: Sequence[Task],
    verifier: Verifier,
    /,
    *,
    gate: Gate = ...,
    config: EvaluateConfig | None = None,
) -> EvaluationReport: ...


def evaluate(subject: Any, /, *given: Any, **options: Any) -> EvaluationReport:
    """Does a playbook help? Agents with it and without it, or with the one it is `against`, attempt the held-out tasks of the
    data, and the gate decides: `journeyman evaluate`. Every look at the same tasks is counted.

    Of `data` the held-out part is taken, as a training with it would; `held_out_input` is taken whole.

    Two agents of one's own are compared on tasks by `evaluate(candidate, baseline, tasks, verifier)`.

    Raises:
        InputError: A file, row or option cannot be used; nothing was spent.
    """
    if _is_agent(subject):
        return compare.evaluate(subject, *given, **options)
    with _examination(subject, *given, **options) as work:
        report: EvaluationReport = waited(work)
    return report


async def aevaluate(
    playbook: PlaybookLike,
    data: Data | None = None,
    *,
    against: PlaybookLike | None = None,
    progress: bool | None = None,
    **options: Unpack[EvaluateOptions],
) -> EvaluationReport:
    """`evaluate` of a playbook, awaited."""
    with _examination(playbook, data, against=against, progress=progress, **options) as work:
        report: EvaluationReport = await work
    return report


def _is_agent(subject: object) -> bool:
    return not isinstance(subject, Playbook | TrainingResult | str | PathLike) and callable(getattr(subject, "run", None))


@contextmanager
def _examination(
    subject: PlaybookLike,
    data: Data | None = None,
    *,
    against: PlaybookLike | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Iterator[Any]:
    """What there is to await."""
    given = _settings(evaluating.command, options)
    rival, anywhere = given.pop("baseline_model", ""), given.pop("any_domain", False)
    dataset, config = _dataset(data, given)
    wiring.try_walls(dataset)
    new, old = _playbook(subject), Playbook() if against is None else _playbook(against)
    if anywhere:
        new, old = evaluating.anywhere_shown(dataset, new), evaluating.anywhere_shown(dataset, old)
    with Screen("attempts", quiet=not _is_shown(progress)) as screen:
        yield evaluating.examine(config, dataset, new, old, rival, done=screen.evaluated)


def _dataset(data: Data | None, given: dict[str, Any]) -> tuple[Dataset, TrainingConfig]:
    rows = _rows(data, given)
    config = settled(TrainingConfig, {**given, "dataset_name": "custom"} if rows is not None else with_dataset(given))
    return wiring.load_dataset(config, data=rows), config


def _begun(
    data: Data | None, initial: PlaybookLike | None, resume: str | bool, options: Mapping[str, Any]
) -> tuple[OfflineTrainer, PlaybookRun]:
    given = _settings(training.command, options)
    rows = _rows(data, given)
    if resume is False:
        trainer = OfflineTrainer(settled(TrainingConfig, with_dataset(given)), data=rows)
        return trainer, trainer.begin(None if initial is None else _playbook(initial))
    if initial is not None or given.keys() - {"max_cost", *OUTPUTS}:
        raise InputError("resume goes on under the settings of its run; only max_cost, output and metrics_output may be given")
    trainer = OfflineTrainer(settled(TrainingConfig, {"max_cost": None, **given}), data=rows)
    return trainer, trainer.reopen(None if resume is True else resume)


@contextmanager
def _watched(trainer: OfflineTrainer, run: PlaybookRun, progress: bool | None) -> Iterator[None]:
    with PlaybookScreen(trainer.examples, quiet=not _is_shown(progress)) as screen:
        trainer.watcher = screen
        try:
            yield
        except (KeyboardInterrupt, asyncio.CancelledError):
            screen.say(f"interrupted; go on with: journeyman.train(resume={run.folder.name!r})")
            raise


def _is_shown(progress: bool | None) -> bool:
    return (sys.stderr.isatty() or "ipykernel" in sys.modules) if progress is None else progress


def _playbook(found: PlaybookLike) -> Playbook:
    if isinstance(found, TrainingResult):
        return found.playbook
    return found if isinstance(found, Playbook) else evaluating.playbook_in(fspath(found))


# Keywords to settings, and what is in memory to rows.

_MADE_TO_ORDER = ("desk", "gsm8k")
"""Data sets that need no file."""


_PLACES = ("store", "project", "key_env", "sandbox")
"""Settings that no option gives, as the project does."""


def _settings(command: click.Command, options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their name, from the words of a command.

    Raises:
        InputError: The command has no such option.
    """
    known = {*(each.name for each in fields(TrainingConfig)), *EvaluateOptions.__annotations__}
    params = [each for each in command.params if each.name in known]
    words = {spelled.lstrip("-").replace("-", "_"): str(each.name) for each in params for spelled in each.opts}
    words |= {name: name for name in (*words.values(), *_PLACES)}
    for word in options.keys() - words.keys():
        near = get_close_matches(word, words, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        name = "train playbook" if command is training.command else "evaluate"
        raise InputError(f"there is no option {word!r} here; `journeyman {name} --help` has all{meant}")
    given = {words[word]: value for word, value in options.items() if value is not None}
    return {name: fspath(value) if isinstance(value, PathLike) else value for name, value in given.items()}


def _rows(data: Data | None, given: dict[str, Any]) -> Values | None:
    """The rows that are in memory, held-out ones among them marked as such; of files and names `given` is told.

    Raises:
        InputError: Some are in memory, and the others in a file.
    """
    if isinstance(data, str | PathLike):
        named = "dataset_name" if data in _MADE_TO_ORDER else "input_path"
        given[named], data = fspath(data), None
    apart = given.get("held_out_path")
    if apart is None or isinstance(apart, str):
        if data is not None and apart:
            raise InputError(f"the data is in memory and held_out_input is the file {apart}; give both in one way")
        return None if data is None else _values(data)
    del given["held_out_path"]
    if "input_path" in given:
        raise InputError(f"held_out_input is in memory and the data is the file {given['input_path']}; give both in one way")
    learned = [] if data is None else _split(data, Split.TRAIN)
    return [*learned, *_split(apart, Split.HELD_OUT)]


def _values(data: Any) -> Any:
    """As they are, but for tasks: those become rows."""
    if not isinstance(data, Sequence) or not any(isinstance(each, Task) for each in data):
        return data
    apart = len({each.split for each in data if isinstance(each, Task)}) > 1
    return [_row(each, apart=apart) if isinstance(each, Task) else each for each in data]


def _row(task: Task, *, apart: bool) -> dict[str, Any]:
    told = {name: getattr(task, name) for name in ("id", "question", "answer", "domain", "cluster")}
    return {name: value for name, value in told.items() if value} | ({"split": task.split.value} if apart else {})


def _split(data: Any, split: Split) -> list[dict[str, Any]]:
    from journeyman.tasks.rows import Complaints, of_values

    bad = Complaints("the data holds rows that cannot be used")
    found = [{**row.value, "split": split.value} for row in of_values(_values(data), bad)]
    bad.check()
    return found
