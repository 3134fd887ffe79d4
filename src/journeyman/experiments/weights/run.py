"""Runs of a training of weights: begun from settings, and found again by name."""

import hashlib
import json
import logging
import math
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from journeyman import rewards
from journeyman.core.errors import InputError, MissingExtra, SettingError
from journeyman.core.task import Split, fingerprints
from journeyman.experiments.evaluator import untrained
from journeyman.experiments.weights import settings as tasks
from journeyman.experiments.weights.config import RunSettings
from journeyman.experiments.wiring import REPOSITORY
from journeyman.io.atomic import write_json
from journeyman.io.files import check_writable, read_object
from journeyman.models import embedded_weights
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.run import fresh, reopened, spoken
from journeyman.optimizers.weights import hardware, model_shape, sizing
from journeyman.optimizers.weights.adapters import read_trained_on, whole_folder, write_trained_on
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.data import read, write
from journeyman.optimizers.weights.job import MODULE, PARENT, TrainingJob, task_lines
from journeyman.optimizers.weights.rows import TOO_FEW, CompletionGroup, LabelledCompletion, Row, too_few_right
from journeyman.optimizers.weights.sizing import (
    HardwareConfig,
    Reason,
    TrainingEstimate,
    detect_hardware,
    gib,
    quick,
    reasons,
    resolve,
)
from journeyman.tasks.base import Dataset, digest

# How the training program is started: by itself, as several processes of `accelerate launch`, on a machine of a Ray cluster.
#
# --launch cpu           one of the files in `launch/`, beside this one
# --launch fsdp:4        with four processes instead of one for each GPU
# --launch mine.yaml     what `accelerate config` wrote
# --workers ray:ADDRESS  wherever the cluster has room; the run's folder must lie where all its machines see it

SHIPPED = Path(__file__).parent / "launch"
FILE = "launch.yaml"
"""In a run's folder: what `accelerate launch` is told. Its changes are those of the run alone."""
HERE = "here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A file of `accelerate launch`."""

    path: Path
    processes: int | None
    """`None` for one on each GPU."""
    on_gpus: bool
    deepspeed: bool


def names() -> list[str]:
    """The files that come with Journeyman."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def find_launcher(named: str) -> Launch:
    """A launch by its name or file, and `:PROCESSES` behind it.

    Raises:
        InputError: There is none, or the file is not one of accelerate's.
    """
    name, count = _parts(named)
    path = SHIPPED / f"{name}.yaml" if name in names() else Path(name)
    if not path.is_file():
        raise SettingError("launch", f"{{}} is {named!r}, and must be one of {', '.join(names())}, or a file of accelerate's")
    told = _read(path)
    processes = count if count is not None else told.get("num_processes")
    if processes is not None and (not isinstance(processes, int) or processes < 1):
        raise SettingError("launch", f"{{}} is {named!r}: {processes!r} is no number of processes")
    deepspeed = str(told["distributed_type"]).upper() == "DEEPSPEED"
    return Launch(path=path, processes=processes, on_gpus=not told.get("use_cpu", False), deepspeed=deepspeed)


def check(config: TrainingConfig, settings: RunSettings) -> None:
    """See that a training can be started as it is asked for. What is on the machines of a cluster is not known here.

    Raises:
        InputError: It needs a GPU that is not there, or is no launch at all.
        MissingExtra: It needs what is not installed.
    """
    asked = find_launcher(settings.launch) if settings.launch else None
    if settings.workers != HERE:
        _needs("ray", "pip install 'journeyman[ray]'")
        return
    if asked is not None:
        _needs("accelerate", "pip install 'journeyman[weights]'")
        if asked.deepspeed:
            _needs("deepspeed", "pip install deepspeed, or take the launch fsdp")
        if asked.on_gpus and not hardware.find():
            raise SettingError("launch", f"{{}} is {settings.launch!r}, which trains on GPUs, and there is none here: take cpu")
    if config.generation == "vllm":
        if not hardware.find():
            raise SettingError("generation", "{} is vllm, which writes on a GPU, and there is none here: leave it at auto")
        _needs("vllm", "pip install vllm, or leave the generation at auto")


def keep(settings: RunSettings, folder: Path) -> None:
    """Put what `accelerate launch` is told into a run's folder, where every machine finds it."""
    if settings.launch:
        (folder / FILE).write_bytes(find_launcher(settings.launch).path.read_bytes())


def command(settings: RunSettings, folder: Path) -> list[str]:
    """What starts the program of a run, before its folder."""
    program = ["-m", MODULE]
    room = []
    if settings.launch:
        kept = (folder / FILE).resolve()
        count = _parts(settings.launch)[1]
        asked = find_launcher(f"{kept}:{count}" if count is not None else str(kept))
        processes = asked.processes or max(1, len(hardware.find()))
        told = ["--config_file", str(kept), "--num_processes", str(processes)]
        program = ["-m", "accelerate.commands.launch", *told, *program]
        room = ["--processes", str(processes), "--gpus", str(processes if asked.on_gpus else 0)]
    if settings.workers == HERE:
        return [sys.executable, *program]
    submit = ["-m", "journeyman.io.executors.ray_program", settings.workers, "--environment", PARENT, *room]
    return [sys.executable, *submit, "--", *program]


def _parts(named: str) -> tuple[str, int | None]:
    """The name or file, and how many processes stand behind it."""
    name, _, count = named.rpartition(":")
    return (name, int(count)) if name and count.isascii() and count.isdecimal() else (named, None)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} is not a file of accelerate's: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or "distributed_type" not in found:
        raise InputError(f"{path} is not a file of accelerate's: it has no distributed_type; `accelerate config` writes one")
    return found


def _needs(module: str, remedy: str) -> None:
    if find_spec(module) is None:
        raise MissingExtra(f"{module} is missing: {remedy}")


# What a training of weights will be: its settings with nothing left open, and what it will take.


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTraining:
    """Before anything is spent."""

    config: TrainingConfig
    """Nothing in it is `None` any more."""
    hardware: HardwareConfig
    derived: tuple[Reason, ...]
    """What was left open, what it became, and why."""
    estimate: TrainingEstimate | None
    """`None` where the shape of the model is not known."""
    unknown: str = ""
    """Why it is not."""

    def json(self) -> dict[str, Any]:
        return {
            "config": self.config.json(),
            "derived": [reason._asdict() for reason in self.derived],
            "estimate": asdict(self.estimate) if self.estimate else None,
            "unknown": self.unknown,
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        for name, value, why in self.derived:
            yield f"{name:28} {value!s:>10}  {why}"
        found = self.estimate
        if found is None:
            yield f"memory and time are not known: {self.unknown}"
            return
        there = "what there is, is not known" if found.limit is None else f"{found.place} has {gib(found.limit)}"
        yield f"memory  about {gib(found.peak)} at the peak; {there}"
        took = "not known" if found.seconds is None else f"about {found.seconds / 60:.0f} min for {found.steps} updates"
        yield f"time    {took}"
        yield f"tokens  at most {found.tokens:,}" if found.tokens is not None else "tokens  not known"
        yield f"cost    ${found.cost:.2f} to others"


def prepare(
    config: TrainingConfig, *, profile: str = "", short: bool = False, fitting: bool = True, examples: int | None = None
) -> PreparedTraining:
    """Fill in what a config leaves open, and estimate.

    Args:
        profile: Of the hardware; that which is found, when none is named.
        short: A run that only shows that everything works.
        fitting: Refuse a training that will not fit.
        examples: How many a file of rows holds, for the estimate.

    Raises:
        InputError: The profile is none, or the training will not fit into memory.
    """
    hardware = detect_hardware(profile) if profile else detect_hardware()
    shape, unknown = model_shape.find(config.base_model)
    if short:
        config = quick(config)
    derived = tuple(reasons(config, shape, hardware))
    config = resolve(config, shape, hardware)
    found = None
    if shape is not None:
        found = (sizing.must_fit if fitting else sizing.estimate)(shape, _counted(config, examples), hardware)
    return PreparedTraining(config=config, hardware=hardware, derived=derived, estimate=found, unknown=unknown)


def _counted(config: TrainingConfig, examples: int | None) -> TrainingConfig:
    """With as many updates as that many rows make, where it is they that decide."""
    if examples is None or config.max_steps is not None or not config.data:
        return config
    batch = (config.per_device_batch_size or 1) * (config.gradient_accumulation_steps or 1)
    return replace(config, max_steps=max(1, math.ceil(examples * config.num_epochs / batch)))


# What can be known to be wrong with a training before there is a run. Nothing is written, and torch is not loaded.

_READ: Mapping[str, tuple[type[Row], ...]] = {
    "kto": (LabelledCompletion, CompletionGroup),
    "grpo-offline": (CompletionGroup,),
    "dpo": (LabelledCompletion, CompletionGroup),
    "rft": (LabelledCompletion, CompletionGroup),
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
        return sum(len(row.completions) if isinstance(row, CompletionGroup) else 1 for row in self.rows)


def gather(config: TrainingConfig, settings: RunSettings, rows: Sequence[Row] | None = None) -> Material:
    """Read all that a training is given, and see that it can be trained on.

    Args:
        rows: What is learned from, instead of a file.

    Raises:
        InputError: A file or setting cannot be used.
        MissingExtra: Something is asked for that is not installed.
    """
    given = bool(config.data) or rows is not None
    _of_repositories(config, given=given)
    found = list(read(config.data)) if config.data and rows is None else list(rows or ())
    _fitting(config, found, given=given)
    check(config, settings)
    _named_checks(config)
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
    if config.method == "kto" and (few := too_few_right(rows)):
        log.warning(
            "%s, and from %.0f %% and fewer kto learned nothing where it was measured: rft and dpo did", few, 100 * TOO_FEW
        )


def _of_repositories(config: TrainingConfig, *, given: bool) -> None:
    """Refuse to sample work in repositories: one completion would always be judged as nothing done."""
    if config.dataset_name == REPOSITORY:
        if not given:
            raise InputError(
                f"work in a repository takes many replies, and {config.method} judges one completion of a prompt: let an agent "
                "attempt the tasks (journeyman evaluate agent), build rows of what went well (journeyman dataset build), and "
                "learn from these with --data"
            )
        raise InputError(
            "the examination of weights asks once for an answer, and work in a repository takes many replies: leave out "
            "--tasks, and compare the models with journeyman evaluate agent --agent local:MODEL+ADAPTER --against local:MODEL"
        )


def _named_checks(config: TrainingConfig) -> None:
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


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRun:
    """One training, with everything that it was told."""

    folder: Path
    config: TrainingConfig
    settings: RunSettings
    dataset: Dataset | None
    """Its tasks; `None` when it learns from rows alone."""

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def job(self) -> TrainingJob:
        return TrainingJob(self.folder)

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    def finish(self, result: dict[str, Any]) -> None:
        """Write that the run is over, and how it ended."""
        write_json(self.result, result)

    @property
    def trained_on(self) -> frozenset[str]:
        """`task.fingerprint`s of what the adapter learns from and is chosen by, and of what it goes on from."""
        return read_trained_on(self.folder)

    def note_trained_on(self) -> None:
        """Put them beside the adapter too, which may be taken elsewhere."""
        write_trained_on(self.job.adapter, self.trained_on)

    def forget(self) -> None:
        """Take the folder away, where nothing was learned in it yet: what was refused is nothing to go on with."""
        if not self.job.checkpoints.exists():
            shutil.rmtree(self.folder)


def begin(config: TrainingConfig, settings: RunSettings, *, rows: Sequence[Row] | None = None) -> WeightsRun:
    """Make the folder of a new run, with nothing spent yet.

    Args:
        rows: What is learned from, instead of a file.

    Raises:
        InputError: A file or setting cannot be used, or the training will not fit into memory; there is no new run then.
    """
    config = settled(config, settings)
    material = gather(config, settings, rows)
    if settings.evaluate and material.dataset:
        before = read_trained_on(Path(config.start_adapter)) if config.start_adapter else frozenset[str]()
        untrained(material.dataset.split(Split.HELD_OUT), before)
    if settings.workers == HERE:
        installed()
    # Whether it fits is known of this machine, and not of a cluster's.
    config = prepare(config, fitting=settings.workers == HERE).config
    runs = Path(settings.project) / "runs"
    check_writable(runs / "run" / "config.json")
    name = _named(config, material.rows, material.dataset)
    folder = fresh(runs, "weights", config.method, spoken(config.domain), name)
    _write(folder, config, settings, material)
    return WeightsRun(folder=folder, config=config, settings=settings, dataset=material.dataset)


def reopen(named: str | None, settings: RunSettings) -> WeightsRun:
    """A run that was begun: the newest that is not over, when none is named. Its own settings hold, but for the store.

    Raises:
        InputError: There is no such run, or it is over, or its data set has changed.
    """
    if not named:
        found = reopened(Path(settings.project) / "runs", lambda folder: opened(folder, settings), "run.json")
        if found is None:
            raise InputError(
                f"there is no unfinished training of weights in {settings.project}/runs; begin one without --resume"
            )
        return found
    folder = find(named, settings)
    if (folder / "result.json").exists():
        raise InputError(f"the run {folder.name} is over; what it learned is in {folder / 'adapter'}")
    return opened(folder, settings)


def opened(folder: Path, settings: RunSettings) -> WeightsRun:
    """The run in that folder, over or not. Its own settings hold, but for the store.

    Raises:
        InputError: Its data set has changed.
    """
    config = TrainingJob(folder).config
    saved = read_object(folder / "run.json")
    kept = RunSettings.of({**saved["settings"], "store": settings.store})
    dataset = tasks.load(config, kept.held_out) if config.dataset_name else None
    if saved["tasks"] != _digest(dataset):
        raise InputError(f"the data set of run {folder.name} has changed since it began; restore it, or begin a new run")
    return WeightsRun(folder=folder, config=config, settings=kept, dataset=dataset)


def find(named: str, settings: RunSettings) -> Path:
    """The folder of a run, by its id or its path.

    Raises:
        InputError: There is none.
    """
    runs = Path(settings.project) / "runs"
    for folder in (runs / named, Path(named)):
        if (folder / "config.json").is_file() and (folder / "run.json").is_file():
            return folder
    names = ", ".join(sorted(path.parent.name for path in runs.glob("*/run.json"))) or "none"
    raise InputError(f"there is no training of weights {named!r} in {runs}; there are: {names}")


def adapter_of(named: str, settings: RunSettings) -> Path:
    """The folder of an adapter, by its path or by the run that made it.

    Raises:
        InputError: There is none.
    """
    if (Path(named) / "adapter_config.json").is_file():
        return Path(named)
    found = find(named, settings) / "adapter"
    if not (found / "adapter_config.json").is_file():
        raise InputError(f"the run {named} has no adapter: it learned nothing yet, or a guard stopped it before the first step")
    return found


def earlier_domains(config: TrainingConfig, settings: RunSettings) -> tuple[str, ...]:
    """Domains that the adapter which is gone on with was trained for, as far as its run tells."""
    if settings.earlier or not config.start_adapter:
        return settings.earlier
    run = Path(config.start_adapter).resolve().parent
    if not (run / "run.json").is_file():
        return ()
    before = read_object(run / "run.json")["settings"].get("earlier", ())
    domains = dict.fromkeys((*before, TrainingJob(run).config.domain))
    return tuple(domain for domain in domains if domain and domain != config.domain)


def settled(config: TrainingConfig, settings: RunSettings) -> TrainingConfig:
    """With the adapter to go on from as a folder, whichever way it was named, and bf16 only where the hardware has it.

    Raises:
        InputError: There is no such adapter.
    """
    if config.start_adapter:
        config = replace(config, start_adapter=str(adapter_of(config.start_adapter, settings).resolve()))
    if config.use_bf16 and settings.workers == HERE and not (hardware := detect_hardware()).use_bf16:
        # Emulated, it would be slower than what it is to speed up.
        why = next(reason.why for reason in hardware.reasons() if reason.name == "use_bf16")
        log.warning("bf16 is not used, though it was asked for: %s", why)
        config = replace(config, use_bf16=False)
    return config


def _named(config: TrainingConfig, rows: Sequence[Row], dataset: Dataset | None) -> str:
    """Made of all that decides what is learned."""
    learned = [config.json(), [asdict(row) for row in rows], _digest(dataset)]
    return hashlib.sha256(json.dumps(learned, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _write(folder: Path, config: TrainingConfig, settings: RunSettings, material: Material) -> None:
    """The folder as a whole, or not at all."""
    with whole_folder(folder) as new:
        if material.rows:
            write(new / "rows.jsonl", material.rows)
        if material.dataset is not None:
            learnable = [task for task in material.dataset.tasks if task.split is not Split.HELD_OUT]
            (new / "tasks.jsonl").write_text("".join(task_lines(learnable)), encoding="utf-8")
        before = read_trained_on(Path(config.start_adapter)) if config.start_adapter else frozenset[str]()
        write_trained_on(new, before | _learned_from(material))
        settings = replace(settings, earlier=earlier_domains(config, settings))
        keep(settings, new)
        write_json(new / "config.json", config.json())
        write_json(new / "run.json", {"settings": settings.json(), "tasks": _digest(material.dataset)})


def _learned_from(material: Material) -> frozenset[str]:
    """The questions of tasks to train on and to choose by, and what users said in rows."""
    found = material.dataset.tasks if material.dataset else ()
    asked = [task.question for task in found if task.split is not Split.HELD_OUT]
    return fingerprints([*asked, *(text for row in material.rows for text in tasks.said_by_user(row))])


def _digest(dataset: Dataset | None) -> str:
    return digest(dataset.tasks if dataset else ())
