"""Runs of a training of weights: begun from settings, and found again by name."""

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from journeyman.errors import InputError
from journeyman.experiments.evaluator import untrained
from journeyman.learn.playbook import files
from journeyman.learn.playbook.runs import fresh, reopened, spoken, write_json
from journeyman.learn.weights.adapters import read_object
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.data import write
from journeyman.learn.weights.hardware import detect_hardware
from journeyman.learn.weights.job import TrainingJob as Job
from journeyman.learn.weights.job import task_lines
from journeyman.learn.weights.rows import Row
from journeyman.release import Stage
from journeyman.task import Split, fingerprints
from journeyman.tasks.base import Dataset, digest
from journeyman.weights import checks, launching, tasks
from journeyman.weights.keeping import read_trained_on, write_trained_on
from journeyman.weights.prepared import prepare
from journeyman.weights.settings import RunSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
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
    def job(self) -> Job:
        return Job(self.folder)

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


def begin(config: TrainingConfig, settings: RunSettings, *, rows: Sequence[Row] | None = None) -> Run:
    """Make the folder of a new run, with nothing spent yet.

    Args:
        rows: What is learned from, instead of a file.

    Raises:
        InputError: A file or setting cannot be used, or the training will not fit into memory; there is no new run then.
    """
    config = settled(config, settings)
    material = checks.gather(config, settings, rows)
    if settings.evaluate and material.dataset:
        before = read_trained_on(Path(config.start_adapter)) if config.start_adapter else frozenset[str]()
        untrained(material.dataset.split(Split.HELD_OUT), before)
    if settings.workers == launching.HERE:
        checks.installed()
    # Whether it fits is known of this machine, and not of a cluster's.
    config = prepare(config, fitting=settings.workers == launching.HERE).config
    runs = Path(settings.project) / "runs"
    files.check_writable(runs / "run" / "config.json")
    name = _named(config, material.rows, material.dataset)
    folder = fresh(runs, "weights", config.method, spoken(config.domain), name)
    _write(folder, config, settings, material)
    return Run(folder=folder, config=config, settings=settings, dataset=material.dataset)


def reopen(named: str | None, settings: RunSettings) -> Run:
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


def opened(folder: Path, settings: RunSettings) -> Run:
    """The run in that folder, over or not. Its own settings hold, but for the store.

    Raises:
        InputError: Its data set has changed.
    """
    config = Job(folder).config
    saved = read_object(folder / "run.json")
    kept = RunSettings(**{**_settings(saved["settings"]), "store": settings.store})
    dataset = tasks.load(config, kept.held_out) if config.dataset_name else None
    if saved["tasks"] != _digest(dataset):
        raise InputError(f"the data set of run {folder.name} has changed since it began; restore it, or begin a new run")
    return Run(folder=folder, config=config, settings=kept, dataset=dataset)


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
    domains = dict.fromkeys((*before, Job(run).config.domain))
    return tuple(domain for domain in domains if domain and domain != config.domain)


def settled(config: TrainingConfig, settings: RunSettings) -> TrainingConfig:
    """With the adapter to go on from as a folder, whichever way it was named, and bf16 only where the hardware has it.

    Raises:
        InputError: There is no such adapter.
    """
    if config.start_adapter:
        config = replace(config, start_adapter=str(adapter_of(config.start_adapter, settings).resolve()))
    if config.use_bf16 and settings.workers == launching.HERE and not (hardware := detect_hardware()).use_bf16:
        # Emulated, it would be slower than what it is to speed up.
        why = next(reason.why for reason in hardware.reasons() if reason.name == "use_bf16")
        log.warning("bf16 is not used, though it was asked for: %s", why)
        config = replace(config, use_bf16=False)
    return config


def _named(config: TrainingConfig, rows: Sequence[Row], dataset: Dataset | None) -> str:
    """Made of all that decides what is learned."""
    learned = [config.json(), [asdict(row) for row in rows], _digest(dataset)]
    return hashlib.sha256(json.dumps(learned, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _write(folder: Path, config: TrainingConfig, settings: RunSettings, material: checks.Material) -> None:
    """The folder as a whole, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    new.chmod(0o755)
    if material.rows:
        write(new / "rows.jsonl", material.rows)
    if material.dataset is not None:
        learnable = [task for task in material.dataset.tasks if task.split is not Split.HELD_OUT]
        (new / "tasks.jsonl").write_text("".join(task_lines(learnable)), encoding="utf-8")
    before = read_trained_on(Path(config.start_adapter)) if config.start_adapter else frozenset[str]()
    write_trained_on(new, before | _learned_from(material))
    settings = replace(settings, earlier=earlier_domains(config, settings))
    launching.keep(settings, new)
    write_json(new / "config.json", config.json())
    write_json(new / "run.json", {"settings": settings.json(), "tasks": _digest(material.dataset)})
    new.rename(folder)


def _learned_from(material: checks.Material) -> frozenset[str]:
    """The questions of tasks to train on and to choose by, and what users said in rows."""
    found = material.dataset.tasks if material.dataset else ()
    asked = [task.question for task in found if task.split is not Split.HELD_OUT]
    return fingerprints([*asked, *(text for row in material.rows for text in tasks.said_by_user(row))])


def _digest(dataset: Dataset | None) -> str:
    return digest(dataset.tasks if dataset else ())


def _settings(saved: dict[str, Any]) -> dict[str, Any]:
    return {**saved, "target_stage": Stage(saved["target_stage"]), "earlier": tuple(saved["earlier"])}
